"""One small message to the daemon: which rollout is meant, who speaks, and the answer."""

import argparse

from houston_shared.config import Loaded
from houston_shared.errors import DaemonNotRunning
from houston_shared.store import opening
from houston_shared.store.queries import rollouts
from houston_shared.store.queries.rollouts import Rollout
from houston_shared.store.reader import Reader
from houston_shared.wire import ControlRequest, Done


def meant(reader: Reader, name: str) -> Rollout:
    """The rollout that `name` stands for.

    Raises HoustonError naming near ones, and DaemonNotRunning where there is no database because
    no daemon ever ran on this home.
    """
    if not opening.written(reader.home):
        raise DaemonNotRunning(f"No daemon runs on {reader.home.path}, and none ever did.")
    return reader.run(rollouts.rollout(name))


def speaker(arguments: argparse.Namespace, loaded: Loaded) -> str:
    """The name claimed with `--as` or in the configuration; empty for the login's own."""
    return str(arguments.claimed or loaded.config.console.name)


def ask(loaded: Loaded, message: ControlRequest, maybe: str, look: str) -> Done:
    """Send a message that may safely be sent twice; see `houston_shared.sending.send`."""
    from houston_shared.sending import send  # zmq: 40 ms that readers do not pay

    return send(loaded.home, message, maybe, look)
