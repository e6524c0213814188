"""`houston verdict R STEP keep|mask|clear`: judge steps; without a verdict, what was said and why.

How it reads is `judged`.
"""

import argparse
import uuid
from collections.abc import Sequence

from houston_console.headless import asking, judged, options
from houston_console.headless.page import Page
from houston_shared import out, permalink
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.permalink import Place
from houston_shared.store import told
from houston_shared.store.plan import END, Plan
from houston_shared.store.queries import progress, verdicts
from houston_shared.store.queries.verdicts import Given, Said
from houston_shared.store.reader import Reader
from houston_shared.wire_people import STEPS, GiveVerdicts, JudgedSteps, Judgement

VERDICTS: dict[str, Judgement] = {
    "keep": "keep",
    "mask": "mask",
    "clear": "undecided",
    "undecided": "undecided",
}

_DONE = {"undecided": "taken back; what judge and rules say counts again"}


def arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `STEP`, a verdict, `--reason`, `--as`, `--json`."""
    options.place(parser, "STEP, R@STEP-STEP")
    parser.add_argument(
        "words",
        nargs="*",
        metavar="[STEP | STEP-STEP] [keep | mask | clear]",
        help="steps, and what is said of them; clear takes one's word back: the judge's or the"
        " rule's counts again. Without a verdict: why it is kept or masked, by every source in the"
        " order in which they count, and all that was said",
    )
    parser.add_argument("--reason", default="", metavar="TEXT", help="why; kept in the journal")
    options.speaker(parser)
    options.as_json(parser, "one JSON line a step that has, or had, a verdict")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Judge, or show."""
    place, verdict = _asked(arguments)
    reader = Reader(loaded.home)
    row = asking.meant(reader, place.rollout)
    rollout = row.id
    place = place._replace(rollout=rollout)
    if place.first > row.steps and not verdict:
        raise options.not_there(row, place)
    if verdict:
        _judge(arguments, loaded, place, verdict, reader.run(progress.last_seq(rollout)))
    stands, said = reader.run(_read(place))
    reader.close()
    if arguments.json:
        for step in sorted({*stands, *_steps(said, place)}):
            out.json_line(judged.as_json(rollout, step, stands.get(step, []), said))
    elif verdict:
        steps = told.steps(place.first, place.last)
        out.line(f"{rollout} {steps}: {_DONE.get(verdict, verdict)}.")
    else:
        judged.show(Page(), place, stands, said, row.steps)
    return int(ExitCode.DONE)


def _asked(arguments: argparse.Namespace) -> tuple[Place, Judgement | None]:
    """Which steps, and what is said of them; raises HoustonError (2)."""
    place = permalink.split(arguments.rollout)
    words = list(arguments.words)
    verdict = VERDICTS[words.pop()] if words and words[-1] in VERDICTS else None
    if words and not place.first:
        place = Place(place.rollout, *permalink.span(words.pop(0)))
    if words or (verdict and not place.first) or (arguments.reason and not verdict):
        raise HoustonError(
            f"{words[0]!r} is no verdict." if words else "Name steps and a verdict.",
            "Nothing was changed.",
            "houston verdict R STEP keep|mask|clear",
            ExitCode.USAGE,
        )
    return place, verdict


def _judge(
    arguments: argparse.Namespace, loaded: Loaded, place: Place, verdict: Judgement, seen: int
) -> None:
    for first in range(place.first, place.last + 1, STEPS):
        last = min(place.last, first + STEPS - 1)
        steps = JudgedSteps(first=first, last=last, verdict=verdict, reason=arguments.reason)
        message = GiveVerdicts(
            request=uuid.uuid4().hex,
            rollout=place.rollout,
            steps=(steps,),
            seen=seen,
            claimed=asking.speaker(arguments, loaded),
        )
        look = f"houston verdict {place.rollout}"
        asking.ask(loaded, message, "The verdict may have been kept.", look)


def _read(place: Place) -> Plan[tuple[dict[int, list[Given]], list[Said]]]:
    ends = (place.first or 1, place.last or END)
    stands = yield from verdicts.standing(place.rollout, *ends)
    return stands, (yield from verdicts.history(place.rollout, *ends))


def _steps(said: Sequence[Said], place: Place) -> set[int]:
    """Steps of a range of which something was said; a word on many steps is many."""
    found: set[int] = set()
    for one in said:
        found |= set(range(max(one.first, place.first), min(one.last, place.last or END) + 1))
    return found
