"""A whole rollout as rules and judge look at it: its closed steps, scores, forks and task.

It is read from the journal in pages and keeps no token ids and no log-probabilities, so that a
rollout of thousands of steps fits into memory. A rollout whose texts are gone is refused: blank
steps would be judged as if nothing had been done there. It knows nothing of verdicts.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from msgspec.structs import replace

from houston_daemon.supervision.attention.window import EVALUATION, StepSeen, of_record
from houston_shared.errors import HoustonError
from houston_shared.records import ENDED, StepRecord
from houston_shared.store.plan import Plan
from houston_shared.store.queries import erased, progress, rollouts, steps
from houston_shared.store.queries.progress import Fork
from houston_shared.store.reader import Reader
from houston_shared.task import Task, parse_task

PAGE = 100
"""Steps that are read at once: their token ids are in memory only so long."""
SCORED = "scored"


class TextsGone(HoustonError):
    """A rollout was archived, or something of it was erased: it cannot be judged any more."""


class Scored(NamedTuple):
    """A submission that gave a score."""

    step: int
    score: float
    """0 to 100."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One rollout as it stood when it was read."""

    rollout: str
    task: Task
    """As it was when the rollout was started."""
    instructions: str
    gpus: Mapping[str, int]
    """Host → GPUs that the rollout leases there; empty where its task leases none."""
    steps: Sequence[StepRecord]
    """Closed steps by number, current attempts; of a branch the past that it shares, too. Their
    samples have neither token ids nor log-probabilities."""
    forks: Sequence[Fork] = ()
    ended: bool = False
    """Whether it is finished, failed or cancelled: nothing follows its last step."""
    seen: Sequence[StepSeen] = field(init=False)
    """The same steps as signals and rules see them: small, typed, in the same order."""
    _scores: tuple[Scored, ...] = field(init=False)
    _numbers: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        seen = tuple(one for one in map(of_record, self.steps) if one is not None)
        put = object.__setattr__
        put(self, "seen", seen)
        put(self, "_scores", tuple(scored for one in seen for scored in _scores(one)))
        put(self, "_numbers", tuple(one.step for one in self.steps))

    @property
    def scores(self) -> tuple[Scored, ...]:
        """Submissions that gave a score, in order; a step may have several."""
        return self._scores

    @property
    def best(self) -> float | None:
        """The highest score; None where there is none."""
        return max((one.score for one in self._scores), default=None)

    def step(self, number: int) -> StepRecord | None:
        """The step with this number; None where it is not there (open, or set aside)."""
        place = bisect_left(self._numbers, number)
        there = place < len(self._numbers) and self._numbers[place] == number
        return self.steps[place] if there else None

    def before(self, number: int) -> Sequence[StepRecord]:
        """Steps with smaller numbers, in order."""
        return self.steps[: bisect_left(self._numbers, number)]


def trace(rollout: str) -> Plan[Trace]:
    """The rollout with this whole id, in one read; a long one is better read with `read`.

    Raises TextsGone, and HoustonError where its specification was erased, or its task cannot be
    read.
    """
    frame = yield from _frame(rollout)
    found: list[StepRecord] = []
    last = yield from steps.last(rollout)
    for first in range(1, last + 1, PAGE):
        found += yield from _page(rollout, first)
    return _whole(frame, found)


def read(reader: Reader, rollout: str, known: Sequence[StepRecord] = ()) -> Trace:
    """The same in a short transaction a page, so that a long rollout holds no writer back.

    known: its steps as they were read before; only those that closed or were replaced since are
    read. Steps that close meanwhile are not in it. Raises as `trace`.
    """
    frame = reader.run(_frame(rollout))
    last = reader.run(steps.last(rollout))
    same = reader.run(_unchanged(rollout, known)) if known else []
    begin = same[-1].step + 1 if same else 1
    pages = (reader.run(_page(rollout, first)) for first in range(begin, last + 1, PAGE))
    whole = _whole(frame, [*same, *(one for page in pages for one in page if one.step <= last)])
    reader.run(all_there(rollout))  # it may have been archived meanwhile
    return whole


def all_there(rollout: str) -> Plan[None]:
    """Raises TextsGone where texts of the rollout (a whole id), or of its past, are gone."""
    if lost := (yield from erased.gone(rollout)):
        read = lost.read or f"houston verdict {rollout}, for what was said of it before"
        raise TextsGone(lost.cause, "Nothing was judged.", read)


def _whole(frame: Trace, found: list[StepRecord]) -> Trace:
    return Trace(
        frame.rollout, frame.task, frame.instructions, frame.gpus, tuple(found), frame.forks,
        frame.ended,
    )  # fmt: skip


def _frame(rollout: str) -> Plan[Trace]:
    """Everything but the steps."""
    yield from all_there(rollout)
    one = yield from rollouts.rollout(rollout)
    spec = yield from rollouts.spec(one)
    forks = yield from progress.forks(one.id)
    task, told = parse_task(spec.task), spec.task.instructions
    return Trace(one.id, task, told, spec.gpus, (), tuple(forks), one.state in ENDED)


def _unchanged(rollout: str, known: Sequence[StepRecord]) -> Plan[list[StepRecord]]:
    """The first of the known steps, as far as they stand in the journal as they did."""
    rows = yield from steps.rows(rollout)
    closed = [row for row in rows if row.observation_seq is not None]
    pairs = zip(known, closed, strict=False)
    return [
        one
        for one, _ in takewhile(
            lambda pair: (
                pair[0].sample_seq == pair[1].sample_seq
                and (pair[0].step, pair[0].attempt) == (pair[1].step, pair[1].attempt)
            ),
            pairs,
        )
    ]


def _page(rollout: str, first: int) -> Plan[list[StepRecord]]:
    """Closed steps of a page, without ids."""
    found = yield from steps.records(rollout, first, first + PAGE - 1)
    return [_light(one) for one in found if one.observation is not None]


def _light(step: StepRecord) -> StepRecord:
    sample = replace(step.sample, new_prompt_ids=None, token_ids=None, logprobs=None)
    return replace(step, sample=sample)


def _scores(step: StepSeen) -> list[Scored]:
    found = [
        call.fields.get("overall_score")
        for call in step.calls
        if call.kind == EVALUATION and call.fields.get("state", SCORED) == SCORED
    ]
    return [Scored(step.step, float(one)) for one in found if isinstance(one, int | float)]
