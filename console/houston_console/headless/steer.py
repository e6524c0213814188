"""Pause, resume and cancel: one message, and `--wait` until the rollout stands so."""

import argparse
import time
from collections.abc import Callable
from typing import Literal

from houston_console.headless import asking, options
from houston_console.headless.following import Following
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.flags import seconds
from houston_shared.records import ENDED
from houston_shared.store import views
from houston_shared.store.queries import rollouts
from houston_shared.store.queries.rollouts import Rollout
from houston_shared.store.reader import Reader
from houston_shared.wire import Steer

Action = Literal["pause", "resume", "cancel"]
WAIT_SECONDS = 60.0

REACHED: dict[str, Callable[[Rollout], bool]] = {
    "pause": lambda one: rollouts.stands(one) or one.state in ENDED,
    "resume": lambda one: one.state != "paused",
    "cancel": lambda one: one.state in ENDED,
}
"""What `--wait` waits for."""
WHEN = {
    "pause": "it stops after the step it is in",
    "resume": "it goes on at once",
    "cancel": "it ends at its next safe point",
}
"""When what was asked for happens, where it has not yet."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--reason`, `--wait`, `--as`, `--json`."""
    options.rollout(parser)
    parser.add_argument("--reason", default="", metavar="TEXT", help="why; kept in the journal")
    parser.add_argument(
        "--wait",
        nargs="?",
        type=seconds,
        const=WAIT_SECONDS,
        metavar="SECONDS",
        help=f"return when the rollout stands so, or fail (75) after SECONDS ({WAIT_SECONDS:g})",
    )
    options.speaker(parser)
    options.as_json(parser, "one JSON object: the rollout as `rollout show`")


def run(arguments: argparse.Namespace, loaded: Loaded, action: Action) -> int:
    """Ask for it and say how the rollout stands."""
    reader = Reader(loaded.home)
    name = asking.meant(reader, arguments.rollout).id
    claimed = asking.speaker(arguments, loaded)
    message = Steer(rollout=name, action=action, reason=arguments.reason, claimed=claimed)
    asking.ask(loaded, message, "It may have been heard.", f"houston rollout show {name}")
    if arguments.wait is None:
        now = reader.run(rollouts.rollout(name))
    else:
        now = _wait(loaded, reader, name, action, arguments.wait)
    reader.close()
    if arguments.json:
        out.json_line(views.rollout(now))
    else:
        out.line(_said(now, action))
    return int(ExitCode.DONE)


def _wait(loaded: Loaded, reader: Reader, name: str, action: Action, seconds: float) -> Rollout:
    end = time.monotonic() + seconds
    with Following(loaded.home, reader) as following:
        now = following.read(lambda: rollouts.rollout(name))
        while not REACHED[action](now):
            if not following.wait(max(0.0, end - time.monotonic())):
                doing = "working" if action == "pause" else now.state
                raise HoustonError(
                    f"{name} is still {doing} after {seconds:g} s.",
                    f"{action.capitalize()} is asked for; {WHEN[action]}.",
                    f"houston rollout show {name}",
                    ExitCode.BUSY,
                )
            now = following.read(lambda: rollouts.rollout(name))
    return now


def _said(now: Rollout, action: Action) -> str:
    if REACHED[action](now):
        return f"{now.id} is {now.state}."
    return f"{now.id}: {action} is asked for; {WHEN[action]}."
