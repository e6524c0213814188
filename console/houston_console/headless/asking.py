"""One small message to the daemon: which rollout is meant, who speaks, and the answer."""

import argparse

from houston_shared.config import Loaded
from houston_shared.errors import DaemonNotRunning, ExitCode, HoustonError
from houston_shared.store.queries import rollouts
from houston_shared.store.queries.rollouts import Rollout
from houston_shared.store.reader import Reader
from houston_shared.wire import ControlRequest, Done


def meant(reader: Reader, name: str) -> Rollout:
    """The rollout that `name` stands for.

    Raises HoustonError naming near ones, and DaemonNotRunning where there is no database because
    no daemon ever ran on this home.
    """
    if not reader.home.database.is_file():
        raise DaemonNotRunning(f"No daemon runs on {reader.home.path}, and none ever did.")
    return reader.run(rollouts.rollout(name))


def speaker(arguments: argparse.Namespace, loaded: Loaded) -> str:
    """The name claimed with `--as` or in the configuration; empty for the login's own."""
    return str(arguments.claimed or loaded.config.console.name)


def ask(loaded: Loaded, message: ControlRequest) -> Done:
    """Send a message that may safely be sent twice, and again once if no answer came.

    Raises DaemonNotRunning, and HoustonError with the daemon's words when it denies.
    """
    from houston_shared.control_client import ControlClient  # zmq: 40 ms that readers do not pay

    with ControlClient(loaded.home) as client:
        try:
            answer = client.ask(message)
        except HoustonError as problem:
            if problem.code is not ExitCode.BUSY:
                raise
            answer = client.ask(message)
    assert isinstance(answer, Done)
    return answer
