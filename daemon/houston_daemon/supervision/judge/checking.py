"""The template before a real engine: how many cases does it judge as meant?"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from houston_daemon.supervision.judge import judging
from houston_daemon.supervision.judge.asking import Asking
from houston_daemon.supervision.judge.cases import Case


class Tried(NamedTuple):
    """One case and what was said of its step."""

    case: Case
    verdict: str
    """`keep`, `mask` or `undecided`."""
    reason: str

    @property
    def as_meant(self) -> bool:
        """Whether it is what a good judge says."""
        return self.verdict == self.case.meant


async def check(cases: Sequence[Case], asking: Asking, concurrency: int) -> list[Tried]:
    """Ask about every case. Raises HoustonError where the engine is away or a window too small."""
    turn = asyncio.Semaphore(concurrency)

    async def one(case: Case) -> Tried:
        asked = judging.windows(case.trace, asking.template, asking.desk)
        verdicts = await judging.judge(case.trace, asked, asking, turn, {}, lambda _: None)
        said = verdicts.steps.get(case.step)
        if said is None:
            return Tried(case, "undecided", verdicts.undecided.get(case.step, ""))
        return Tried(case, said.verdict, said.reason)

    return await judging.all_of([one(case) for case in cases])
