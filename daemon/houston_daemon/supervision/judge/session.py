"""One run of `houston judge` over rollouts: read, rules, windows, judge, store.

Rules come first and are stored at once. A rollout is held in memory only while it is judged; as
many as windows may be asked about at once are under way together. One whose texts are gone is
passed over: blank steps say nothing, and what was said of it stays. One on which a rule fails is
named, and the others are judged.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from houston_daemon.engines.protocol import EngineRefused
from houston_daemon.supervision import ruling
from houston_daemon.supervision.judge import judging, turn, waiting, windows
from houston_daemon.supervision.judge.asking import Asking, Desk
from houston_daemon.supervision.judge.cache import Cache
from houston_daemon.supervision.judge.cost import Cost
from houston_daemon.supervision.judge.judging import Verdicts
from houston_daemon.supervision.judge.results import Outcome, not_judged
from houston_daemon.supervision.judge.template import Template
from houston_daemon.supervision.rules import catalog
from houston_daemon.supervision.rules import verdicts as rules
from houston_daemon.supervision.rules.catalog import RuleFailed
from houston_daemon.supervision.storing import MAYBE, Said, store
from houston_daemon.supervision.trace import TextsGone, Trace, read
from houston_shared.config import Loaded
from houston_shared.config_judge import Judge
from houston_shared.sending import send
from houston_shared.store.queries.verdicts import standing
from houston_shared.store.reader import Reader


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for."""

    rules: bool = True
    """Store what rules say."""
    judge: bool = True
    dry: bool = False
    """Ask and store nothing."""


@dataclass(slots=True)
class Session:
    """What one run needs; `desk` is None where no judge is asked for."""

    loaded: Loaded
    settings: Judge
    wanted: Wanted
    template: Template
    desk: Desk | None
    note: Callable[[str], None]
    done: Callable[[Outcome], None]
    """Told of each rollout as it is done."""
    cost: Cost = field(default_factory=Cost)
    passed: list[str] = field(default_factory=list)
    """Rollouts that were archived or erased, and therefore not judged."""
    failed: list[str] = field(default_factory=list)
    """Rollouts on which a rule failed, and which are therefore not judged."""

    async def run(self, rollouts: Sequence[str]) -> None:
        """Judge rollouts (whole ids), but those of `passed` and `failed`. Raises HoustonError; what
        was stored until then stays."""
        at_once = asyncio.Semaphore(self.settings.concurrency)
        open_rollouts = asyncio.Semaphore(self.settings.concurrency)

        async def one(rollout: str) -> None:
            async with open_rollouts:
                with self._turn(rollout):
                    try:
                        outcome = await self._rollout(rollout, at_once)
                    except TextsGone:
                        self.passed.append(rollout)
                        return
                    except RuleFailed as problem:
                        self.failed.append(rollout)
                        self.note(not_judged(rollout, problem))
                        return
                    self.done(outcome)

        await judging.all_of([one(rollout) for rollout in rollouts])

    def _turn(self, rollout: str) -> contextlib.AbstractContextManager[None]:
        """Rules say the same whoever asks; a judge is asked by one at a time."""
        if self.desk is None or self.wanted.dry:
            return contextlib.nullcontext()
        return turn.taken(self.loaded.home, rollout)

    async def _rollout(self, rollout: str, at_once: asyncio.Semaphore) -> Outcome:
        with contextlib.closing(Reader(self.loaded.home)) as reader:
            trace = read(reader, rollout)
            found = catalog.found(trace)
            outcome = self._rules(reader, trace, found)
            if self.desk is None:
                return outcome
            outcome.by = f"judge:{self.desk.name} template {self.template.version}"
            asked = judging.windows(trace, self.template, self.desk)
            asking = Asking(
                self.desk, self.template, self.settings, Cache(self.loaded.home), outcome.cost
            )
            if self.wanted.dry:
                return _planned(outcome, asked, asking)
            errors = ruling.errors(found)
            try:
                async with waiting.told(rollout, len(asked), self.note) as done:
                    outcome.judge = await judging.judge(trace, asked, asking, at_once, errors, done)
            except EngineRefused as problem:
                raise _refused(problem, rollout, self.desk) from problem
            finally:
                self.cost.add(outcome.cost)
            outcome.taken = _taken(ruling.said(trace, found), outcome.judge)
            if outcome.judge.steps:  # who said nothing at all replaces nothing
                outcome.judge_changed = self._keep(reader, trace, outcome.by, outcome.judge)
            return outcome

    def _rules(self, reader: Reader, trace: Trace, found: ruling.Found) -> Outcome:
        """What rules say, stored."""
        steps = ruling.own_steps(trace)
        outcome = Outcome(trace.rollout, len(steps))
        if self.wanted.rules:
            outcome.rules = ruling.said(trace, found)
            outcome.by_rule = ruling.counts(trace, found)
            if not self.wanted.dry:
                outcome.rules_changed = self._keep_rules(reader, trace)
        return outcome

    def _keep_rules(self, reader: Reader, trace: Trace) -> int:
        """Have the recorder keep what rules say; the number of steps that changed."""
        stands = reader.run(standing(trace.rollout))
        sent = rules.messages(trace, stands)
        for message in sent:
            send(self.loaded.home, message, MAYBE, f"houston verdict {trace.rollout}")
        return sum(one.last - one.first + 1 for message in sent for one in message.steps)

    def _keep(self, reader: Reader, trace: Trace, by: str, verdicts: Verdicts) -> int:
        said = {step: Said(one.verdict, one.reason) for step, one in verdicts.steps.items()}
        attempts = {one.step: one.attempt for one in trace.steps if not one.inherited}
        return store(self.loaded, reader, trace.rollout, by, attempts, said)


def _taken(masked: Mapping[int, Said], verdicts: Verdicts) -> dict[int, str]:
    """Steps that the judge keeps although rules mask them, with the rules' reason."""
    return {
        step: masked[step].reason
        for step, one in verdicts.steps.items()
        if one.verdict == "keep" and step in masked
    }


def _refused(problem: EngineRefused, rollout: str, desk: Desk) -> EngineRefused:
    """The engine's words, and what can be done where its window is smaller than was thought."""
    return EngineRefused(
        problem.cause,
        f"What the judge said of {rollout} before stays.",
        problem.next or f"--window TOKENS, where it takes less than {desk.window} at once",
    )


def _planned(outcome: Outcome, asked: Sequence[windows.Window], asking: Asking) -> Outcome:
    """A dry run: what would be asked and what it would take."""
    new = [one for one in asked if not asking.known(one)]
    outcome.planned, outcome.kept_before = len(asked), len(asked) - len(new)
    outcome.cost = replace(
        outcome.cost, windows=len(asked), cached=outcome.kept_before, about=True,
        prompt_tokens=sum(one.tokens for one in new),
        sampled_tokens=sum(one.answer_tokens for one in new),
    )  # fmt: skip
    return outcome
