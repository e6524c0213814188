"""`houston steps R`, R@STEP or R@STEP-STEP: the steps of a rollout; with -f as they close."""

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from houston_console.headless import options, printed, spoken_step
from houston_console.headless.following import Following
from houston_console.headless.page import Page
from houston_shared import out, permalink
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode
from houston_shared.records import ENDED, StepRecord
from houston_shared.store import step_view
from houston_shared.store.plan import END, Plan
from houston_shared.store.queries import archived, aside, people, rollouts, steps
from houston_shared.store.queries.people import Verdict
from houston_shared.store.queries.rollouts import Rollout
from houston_shared.store.reader import Reader

PAGE = 50
"""Steps of one read: short transactions, whatever the length of the rollout."""

Verdicts = Mapping[tuple[int, int], Verdict]
Closed = tuple[list[StepRecord], Verdicts, int]
"""Steps that are over, verdicts on them, and the newest step."""
Read = Callable[[Callable[[], Plan[Closed]]], Closed]
"""Runs the plan that it is given the maker of."""
Show = Callable[[list[StepRecord], Verdicts], None]


def arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--from`, `--to`, `-n`, `-f`, `--full`, `--printed`, `--json`."""
    options.place(parser, "STEP, R@STEP-STEP")
    number = options.positive
    parser.add_argument(
        "--from", dest="first", type=number, default=1, metavar="N", help="first step (1)"
    )
    parser.add_argument(
        "--to", dest="last", type=number, default=END, metavar="N", help="last step (the newest)"
    )
    parser.add_argument("-n", dest="newest", type=number, metavar="N", help="only the last N")
    parser.add_argument("-f", "--follow", action="store_true", help="go on as steps are closed")
    parser.add_argument("--full", action="store_true", help="leave nothing out")
    parser.add_argument(
        "--printed", action="store_true", help="all that its terminals printed, from their logs"
    )
    options.as_json(parser, "one JSON line a closed step")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Show closed steps, oldest first."""
    place = permalink.split(arguments.rollout)
    if place.first:
        arguments.first = max(arguments.first, place.first)
        arguments.last = min(arguments.last, place.last)
    with Reader(loaded.home) as reader:
        one = reader.run(rollouts.rollout(place.rollout))
        if told := reader.run(archived.sentence(one.id)):
            out.note(told)
        for loss in aside.losses(reader.run(aside.holes(one.id))):
            out.note(f"{one.id}: {aside.loss_said(loss)}.")
        first = arguments.first
        if arguments.newest:
            first = max(first, min(one.steps, arguments.last) - arguments.newest + 1)
        host_root = reader.run(rollouts.spec(one)).host_root if arguments.printed else ""
        show = _shower(one.id, arguments, loaded.home.path, host_root)
        if arguments.follow:
            after = _follow(loaded, reader, one, first, arguments.last, show)
        else:
            after = _pages(lambda plan: reader.run(plan()), one.id, first, arguments.last, show)
        if place.first and after == first <= arguments.last:
            raise options.not_there(one, place)
    return int(ExitCode.DONE)


def _shower(rollout: str, arguments: argparse.Namespace, home: Path, host_root: str) -> Show:
    page = Page()

    def show(found: list[StepRecord], verdicts: Verdicts) -> None:
        for one in found:
            line = step_view.step(rollout, one, verdicts.get((one.step, one.attempt)))
            if arguments.json:
                out.json_line(line)
            else:
                spoken_step.show(page, one, line["verdict"], arguments.full)
                spans = one.observation.spans if one.observation and arguments.printed else ()
                for span in spans:
                    printed.show(page, home, host_root, one.inherited or rollout, span)
        page.flush()

    return show


def _follow(loaded: Loaded, reader: Reader, one: Rollout, first: int, last: int, show: Show) -> int:
    """Go on until the rollout has ended, or the range; returns the number of the next step."""
    with Following(loaded.home, reader) as following:
        while True:
            # Looked at before its steps are: a rollout that has ended closes no more of them.
            ended = following.read(lambda: rollouts.rollout(one.id)).state in ENDED
            first = _pages(following.read, one.id, first, last, show)
            if ended:
                out.note(f"{one.id} has ended.")
            if ended or first > last:
                return first
            following.wait()


def _pages(read: Read, rollout: str, first: int, last: int, show: Show) -> int:
    """Show steps that are over from `first` on; returns the number of the next one."""
    while first <= last:
        end = min(last, first + PAGE - 1)
        found, verdicts, newest = read(partial(_over, rollout, first, end))
        show(found, verdicts)
        if end >= newest:
            return found[-1].step + 1 if found else first
        first = end + 1
    return first


def _over(rollout: str, first: int, last: int) -> Plan[Closed]:
    """Closed steps, and those that a repair has left without an end."""
    records = yield from steps.records(rollout, first, last)
    found = yield from aside.marked(rollout, records, first, last)
    verdicts = yield from people.verdicts(rollout, first, last)
    newest = yield from steps.last(rollout)
    ended = (yield from rollouts.rollout(rollout)).state in ENDED
    over = [
        one
        for one in found
        if one.observation is not None or (one.aside and (ended or one.step < newest))
    ]
    newest = max([newest, *(one.step for one in over)])
    return over, people.standing(verdicts), newest
