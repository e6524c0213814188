"""`houston bookmark R STEP`: mark a step for everybody; without a step, what is marked."""

import argparse

from houston_console.headless import asking, options
from houston_console.headless.page import Page, span
from houston_shared import out, permalink
from houston_shared.clock import iso, local
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.store.queries import people
from houston_shared.store.queries.people import Bookmark as Marked
from houston_shared.store.reader import Reader
from houston_shared.wire import Bookmark


def arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `STEP`, `--note`, `--remove`, `--as`, `--json`."""
    options.place(parser)
    parser.add_argument(
        "step", type=options.positive, nargs="?", metavar="STEP", help="the step to mark"
    )
    change = parser.add_mutually_exclusive_group()
    change.add_argument("--note", default="", metavar="TEXT", help="why; everybody reads it")
    change.add_argument("--remove", action="store_true", help="take one's own mark away")
    options.speaker(parser)
    options.as_json(parser, "one JSON line a bookmark")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Mark, take away, or list."""
    name, step = permalink.one(arguments.rollout, arguments.step)
    if not step and (arguments.note or arguments.remove):
        raise HoustonError("Name a step.", "", "houston bookmark R@STEP", ExitCode.USAGE)
    reader = Reader(loaded.home)
    rollout = asking.meant(reader, name).id
    if step:
        _mark(arguments, loaded, rollout, step)
    found = [one for one in reader.run(people.bookmarks(rollout)) if step in (0, one.step)]
    reader.close()
    if arguments.json:
        for one in found:
            line = {"rollout": one.rollout, "step": one.step, "author": one.author}
            out.json_line({**line, "note": one.note, "at": iso(one.at)})
    elif step:
        done = "your mark is removed" if arguments.remove else "marked"
        out.line(f"{permalink.made(rollout, step)}: {done}.")
    else:
        _list(rollout, found)
    return int(ExitCode.DONE)


def _mark(arguments: argparse.Namespace, loaded: Loaded, rollout: str, step: int) -> None:
    message = Bookmark(
        rollout=rollout,
        step=step,
        note=arguments.note,
        remove=arguments.remove,
        claimed=asking.speaker(arguments, loaded),
    )
    look = f"houston bookmark {rollout}"
    asking.ask(loaded, message, "The bookmark may have been kept.", look)


def _list(rollout: str, found: list[Marked]) -> None:
    page = Page()
    for one in found:
        page.line(
            span(f"{permalink.made(rollout, one.step)} ", "name"),
            span(f"{local(one.at)} {one.author}", "dim"),
            span(f"  {one.note}" if one.note else ""),
        )
    if not found:
        next = f"houston bookmark {rollout}@STEP --note TEXT"
        out.note(f"No step of {rollout} is marked.\n  next: {next}")
