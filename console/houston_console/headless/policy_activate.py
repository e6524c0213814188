"""`houston policy activate policy@2`: have new rollouts of an engine sample with it.

The daemon brings the engine up, loads the policy into it and samples one token before it counts;
rollouts that run keep what they have.
"""

import argparse
import time
import uuid

from houston_console.headless import asking, options
from houston_console.headless.following import Following
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.flags import seconds
from houston_shared.policy_names import BASE
from houston_shared.store import policy_views
from houston_shared.store.queries import policies
from houston_shared.store.queries.policies import Activation
from houston_shared.store.reader import Reader
from houston_shared.wire_training import ActivatePolicy

WAIT_SECONDS = 900.0
"""A large model may take minutes to start."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """`POLICY`, and the options of `rollback`."""
    parser.add_argument(
        "policy", metavar="POLICY", help=f"policy@2; `{BASE}` for the engine's own model"
    )
    add_options(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    """`--engine`, `--wait`, `--as`, `--json`."""
    parser.add_argument("--engine", default="", metavar="E", help="engine; default: the default")
    parser.add_argument(
        "--wait",
        type=seconds,
        default=WAIT_SECONDS,
        metavar="SECONDS",
        help=f"return at the latest after so long ({WAIT_SECONDS:g}); it goes on all the same",
    )
    options.speaker(parser)
    options.as_json(parser, "one JSON object: the activation")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Ask for it, and say what came of it."""
    policy = "" if arguments.policy == BASE else arguments.policy
    return ask(arguments, loaded, policy, rollback=False)


def ask(arguments: argparse.Namespace, loaded: Loaded, policy: str, rollback: bool) -> int:
    """One activation, from asking to its end."""
    engine = arguments.engine or loaded.config.default_engine
    loaded.engine(engine)  # unknown ones are said at once
    message = ActivatePolicy(
        request=uuid.uuid4().hex,
        engine=engine,
        policy=policy,
        rollback=rollback,
        claimed=asking.speaker(arguments, loaded),
    )
    seq = asking.ask(loaded, message, "It may have been done.", "houston policy list").seq
    ended = _wait(loaded, seq, arguments.wait)
    if arguments.json:
        out.json_line(policy_views.activation(ended))
    if ended.state == "failed":
        effect = f"New rollouts of {engine} sample with what they did."
        raise HoustonError(ended.reason, effect, "houston policy list")
    if not arguments.json:
        what = ended.policy or "its own model"
        out.line(f"New rollouts of {engine} sample with {what}; those that run keep theirs.")
    return int(ExitCode.DONE)


def _wait(loaded: Loaded, seq: int, patience: float) -> Activation:
    end = time.monotonic() + patience
    with Reader(loaded.home) as reader, Following(loaded.home, reader) as following:
        while True:
            now = following.read(lambda: policies.activation(seq))
            if now is not None and now.state != "asked":
                return now
            if not following.wait(max(0.0, end - time.monotonic())):
                raise HoustonError(
                    f"The engine has not answered with it for {patience:g} s.",
                    "It goes on being tried; new rollouts sample with what they did until then.",
                    "houston daemon status",
                    ExitCode.BUSY,
                )
