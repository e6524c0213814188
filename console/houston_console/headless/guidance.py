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
from houston_shared.wire_people import Reorder


def arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--withdraw`, `--edit` or `--reorder`, `--as`, `--json`."""
    options.rollout(parser)
    change = parser.add_mutually_exclusive_group()
    change.add_argument("--withdraw", metavar="ID", help="take queued guidance back")
    change.add_argument(
        "--edit", nargs=2, metavar=("ID", "TEXT"), help="give queued guidance another text"
    )
    change.add_argument(
        "--reorder",
        nargs="+",
        metavar="ID",
        help="deliver what is queued in this order; what is not named comes after it as before",
    )
    options.speaker(parser)
    options.as_json(parser, "one JSON line a piece of guidance")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """List, withdraw, edit or reorder."""
    if arguments.withdraw or arguments.edit:
        found = [_change(arguments, loaded)]
    elif arguments.reorder:
        found = _reorder(arguments, loaded)
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


def _reorder(arguments: argparse.Namespace, loaded: Loaded) -> list[Guidance]:
    """Put queued guidance in another order; the daemon refuses when the queue changed meanwhile."""
    with Reader(loaded.home) as reader:
        rollout = asking.meant(reader, arguments.rollout).id
        queued = _queued(reader.run(guidance.of_rollout(rollout)))
        named = [reader.run(guidance.one(id)) for id in arguments.reorder]
        ids = [one.id for one in queued]
        for one in named:
            if one.id not in ids:
                raise HoustonError(
                    f"Guidance {one.id} is not queued for {rollout}: it is {one.state}.",
                    "Nothing was changed.",
                    f"houston guidance {rollout}",
                )
        first = list(dict.fromkeys(one.id for one in named))
        message = Reorder(
            rollout=rollout,
            order=(*first, *(id for id in ids if id not in first)),
            seen=tuple(ids),
            claimed=asking.speaker(arguments, loaded),
        )
        look = f"houston guidance {rollout}"
        asking.ask(loaded, message, "The order may have been changed.", look)
        return _queued(reader.run(guidance.of_rollout(rollout)))


def _queued(found: list[Guidance]) -> list[Guidance]:
    return [one for one in found if one.state == "queued"]


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
