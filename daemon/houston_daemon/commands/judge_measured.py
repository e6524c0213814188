"""`houston judge --calibrate` and `--check-template`: how good rules, judge and template are."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from houston_daemon.supervision.judge import cases, checking
from houston_daemon.supervision.judge.agreement import Agreement, Interval
from houston_daemon.supervision.judge.asking import Asking, Desk
from houston_daemon.supervision.judge.cache import Cache
from houston_daemon.supervision.judge.calibration import Calibration, judged_by_people
from houston_daemon.supervision.judge.calibration import calibrate as compared
from houston_daemon.supervision.judge.checking import Tried
from houston_daemon.supervision.judge.cost import Cost
from houston_daemon.supervision.judge.results import not_judged, passed_over
from houston_daemon.supervision.judge.template import Template
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.config_judge import Judge
from houston_shared.errors import ExitCode
from houston_shared.store.reader import Reader

_HEAD = ("", "steps", "masks", "right", "precision", "recall", "F1", "kappa", "agreement")


def calibrate(loaded: Loaded, rollouts: Sequence[str], json: bool) -> int:
    """Compare rules and judge with people over `rollouts`, all where none is named."""
    with contextlib.closing(Reader(loaded.home)) as reader:
        named = list(rollouts) or reader.run(judged_by_people())
        found = compared(reader, named)
    if said := passed_over(found.passed):
        out.note(said)
    for rollout, problem in found.failed.items():
        out.note(not_judged(rollout, problem))
    code = int(ExitCode.FAILED if found.failed else ExitCode.DONE)
    if json:
        for name, one in found.by.items():
            out.json_line({"source": name, "rollouts": found.rollouts, **one.as_json()})
        return code
    if not (found.steps or found.passed or found.failed):
        out.note("No person has judged a step there.\n  next: houston verdict R STEP keep|mask")
    for line in _table(found) if found.steps else ():
        out.line(line)
    return code


def check(
    loaded: Loaded,
    made: AbstractAsyncContextManager[Desk],
    template: Template,
    settings: Judge,
    folder: Path | None,
    json: bool,
) -> int:
    """Put every case before the engine and say how many it judges as meant."""
    cost = Cost()

    async def asked() -> list[Tried]:
        async with made as desk:
            asking = Asking(desk, template, settings, Cache(loaded.home), cost)
            return await checking.check(cases.load(folder), asking, settings.concurrency)

    tried = asyncio.run(asked())
    for one in tried:
        if json:
            out.json_line(
                {
                    "criterion": one.case.criterion,
                    "case": one.case.name,
                    "meant": one.case.meant,
                    "verdict": one.verdict,
                    "as_meant": one.as_meant,
                    "reason": one.reason,
                }
            )
        elif not one.as_meant:
            said = f"{one.case.criterion}: {one.case.name}: meant {one.case.meant}"
            out.line(f"{said}, said {one.verdict}{f' ({one.reason})' if one.reason else ''}")
    if not json:
        out.line(f"{_as_meant(tried)} as meant: {', '.join(_by_meaning(tried))}.")
        out.note(cost.words(settings))
    return int(ExitCode.DONE)


def _by_meaning(tried: Sequence[Tried]) -> Iterator[str]:
    for meant in ("keep", "mask"):
        yield f"{_as_meant([one for one in tried if one.case.meant == meant])} to {meant}"
    if undecided := sum(one.verdict == "undecided" for one in tried):
        yield f"{undecided} undecided"


def _as_meant(tried: Sequence[Tried]) -> str:
    return f"{sum(one.as_meant for one in tried)} of {len(tried)}"


def _table(found: Calibration) -> Iterator[str]:
    yield (
        f"{found.steps} steps of {found.rollouts} rollouts were judged by people: "
        f"{found.masked} masked, {found.steps - found.masked} kept. Bounds at 95 %."
    )
    silent = [name for name, one in found.by.items() if not one.both + one.only_source]
    rows = [_HEAD, *(_row(name, one) for name, one in found.by.items() if name not in silent)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEAD))]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()
    if silent:
        yield f"Masked none of these steps: {', '.join(silent)}."
    for reason in dict.fromkeys(one.few for one in found.by.values() if one.few):
        yield f"Too little to go by: {reason}."


def _row(name: str, one: Agreement) -> tuple[str, ...]:
    masks = one.both + one.only_source
    return (
        name, str(one.steps), str(masks), str(one.both), _share(one.precision), _share(one.recall),
        _figure(one.f1), _figure(one.kappa), _share(one.agreed),
    )  # fmt: skip


def _share(one: Interval) -> str:
    return "–" if one.value is None else f"{one.value:.2f} ({one.low:.2f}–{one.high:.2f})"


def _figure(one: float | None) -> str:
    return "–" if one is None else f"{one + 0.0:.2f}"
