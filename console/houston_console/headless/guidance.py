"""`houston guidance R`: what was said to a rollout, and when it was heard; take back or change."""

import argparse

from houston_console.headless import asking, options, spoken
from houston_console.headless.page import Page
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.records import Guidance
from houston_shared.store import views
from houston_shared.store.queries import guidance, rollouts
from houston_shared.store.reader import Reader
from houston_shared.wire import EditGuidance, Withdraw


def arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--withdraw` or `--edit`, `--as`, `--json`."""
    options.rollout(parser)
    change = parser.add_mutually_exclusive_group()
    change.add_argument("--withdraw", metavar="ID", help="take queued guidance back")
    change.add_argument(
        "--edit", nargs=2, metavar=("ID", "TEXT"), help="give queued guidance another text"
    )
    options.speaker(parser)
    options.as_json(parser, "one JSON line a piece of guidance")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """List, withdraw or edit."""
    if arguments.withdraw or arguments.edit:
        found = [_change(arguments, loaded)]
    else:
        with Reader(loaded.home) as reader:
            rollout = reader.run(rollouts.resolve(arguments.rollout))
            found = reader.run(guidance.of_rollout(rollout))
    page = Page()
    for one in found:
        if arguments.json:
            out.json_line(views.guidance(one))
        else:
            spoken.guidance(page, one)
    if not found:
        out.note(f"Nothing was said to {rollout}.\n  next: houston guide {rollout} TEXT")
    return int(ExitCode.DONE)


def _change(arguments: argparse.Namespace, loaded: Loaded) -> Guidance:
    """Withdraw or edit; the daemon refuses what was delivered or changed meanwhile."""
    with Reader(loaded.home) as reader:
        rollout = asking.meant(reader, arguments.rollout).id
        said = reader.run(guidance.one(arguments.withdraw or arguments.edit[0]))
    if said.rollout != rollout:
        raise HoustonError(
            f"Guidance {said.id} belongs to {said.rollout}, not to {rollout}.",
            "Nothing was changed.",
            f"houston guidance {said.rollout}",
        )
    claimed = asking.speaker(arguments, loaded)
    message: Withdraw | EditGuidance = Withdraw(id=said.id, claimed=claimed)
    if not arguments.withdraw:
        text, seen = arguments.edit[1], said.revision
        message = EditGuidance(id=said.id, revision=seen, text=text, claimed=claimed)
    done = asking.ask(loaded, message, "It may have been changed.", f"houston guidance {rollout}")
    assert done.guidance is not None
    return done.guidance
