"""One run of `houston judge` over rollouts: read, run rules, plan windows, ask, store.

Rules come first and are stored at once. Only one judge at a time works on a rollout (a file lock).
Progress is reported while a long answer is awaited. Rollouts whose texts are gone are skipped; one
on which a rule fails, or that another judge has, is named, and the others are judged.
"""

import asyncio
import contextlib
import fcntl
import os
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from houston_daemon.engines.engine_protocol import EngineRefused
from houston_daemon.review import verdict_updates
from houston_daemon.review.judge import judge_prompt, judge_verdicts
from houston_daemon.review.judge.judge_cache import JudgeCache
from houston_daemon.review.judge.judge_client import (
    JudgeClient,
    JudgeCost,
    WindowDecision,
    WindowJudge,
)
from houston_daemon.review.judge.judge_template import JudgeTemplate
from houston_daemon.review.judge.judge_verdicts import (
    JudgeOutcome,
    JudgeVerdicts,
    rule_failed_sentence,
)
from houston_daemon.review.rollout_trace import RolloutTrace, TextsUnavailable, read_trace
from houston_daemon.review.rules import rule_catalog
from houston_daemon.review.rules.rule_catalog import RuleFailed
from houston_daemon.review.verdict_updates import (
    StepVerdict,
    record_review_cost,
    store_judge_verdicts,
)
from houston_shared.command_output import error_text
from houston_shared.config import LoadedConfiguration
from houston_shared.config_sections import JudgeSettings
from houston_shared.control_messages import StoreReviewCost
from houston_shared.errors import Busy
from houston_shared.home import Home
from houston_shared.store.annotation_queries import read_verdicts_with_reasons
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import pluralize

SILENCE_SECONDS = 15.0
"""Seconds without a word after which one is said."""


@contextlib.asynccontextmanager
async def report_progress(
    rollout: str, total: int, note: Callable[[str], None], interval: float = SILENCE_SECONDS
) -> AsyncIterator[Callable[[WindowDecision], None]]:
    """Context for asking about `total` windows; yields a function to call after each window.

    note: takes a line for people. interval: seconds.
    """
    loop = asyncio.get_running_loop()
    start_time = loop.time()
    count = 0

    def count_window(_: WindowDecision) -> None:
        nonlocal count
        count += 1
        if total > 1:
            note(f"{rollout}: {count} of {pluralize(total, 'window')}")

    async def repeat() -> None:
        while True:
            await asyncio.sleep(interval)
            seconds = loop.time() - start_time
            note(f"{rollout}: judge, {count} of {pluralize(total, 'window')} after {seconds:.0f} s")

    beating = asyncio.create_task(repeat())
    try:
        yield count_window
    finally:
        beating.cancel()


class RolloutBusy(Busy):
    """Another judge works on a rollout."""


@contextlib.contextmanager
def lock_rollout(home: Home, rollout: str) -> Iterator[None]:
    """Hold the lock for judging a rollout (a whole id). Raises RolloutBusy where another has it."""
    fd = _open_lock_file(home.run / f"judge-{rollout}.lock")
    if fd is None:
        yield
        return
    try:
        _lock_or_refuse(fd, rollout)
        yield
    finally:
        os.close(fd)


def _lock_or_refuse(fd: int, rollout: str) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RolloutBusy(
            f"{rollout} is already being judged by another `houston judge`.",
            "This command did not judge it.",
            f"houston judge {rollout}, when that has ended: its answers are reused",
        ) from None


def _open_lock_file(file: Path) -> int | None:
    """The lock's file; None for a member of the group, who may write none, where there is none."""
    try:
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except PermissionError:
        pass
    try:
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """What is asked for."""

    rules: bool = True
    """Store what rules say."""
    judge: bool = True
    dry: bool = False
    """Ask and store nothing."""


@dataclass(slots=True)
class JudgeSession:
    """What one run needs; `client` is None where no judge is asked for."""

    loaded: LoadedConfiguration
    settings: JudgeSettings
    request: JudgeRequest
    template: JudgeTemplate
    client: JudgeClient | None
    note: Callable[[str], None]
    report: Callable[[JudgeOutcome], None]
    """Told of each rollout as it is done."""
    cost: JudgeCost = field(default_factory=JudgeCost)
    passed_over: list[str] = field(default_factory=list)
    """Rollouts that were archived or erased, and therefore not judged."""
    failed: list[str] = field(default_factory=list)
    """Rollouts on which a rule failed, and which are therefore not judged."""
    busy: list[str] = field(default_factory=list)
    """Rollouts that were left to another judge."""

    async def run(self, rollouts: Sequence[str]) -> None:
        """Judge rollouts (whole ids), and note the others in `passed_over`, `failed` and `busy`.
        Raises HoustonError; what was stored until then stays."""
        at_once = asyncio.Semaphore(self.settings.concurrency)
        open_rollouts = asyncio.Semaphore(self.settings.concurrency)

        async def judge_one(rollout: str) -> None:
            async with open_rollouts:
                try:
                    with self._lock(rollout):
                        outcome = await self._rollout(rollout, at_once)
                except TextsUnavailable:
                    self.passed_over.append(rollout)
                except RuleFailed as problem:
                    self.failed.append(rollout)
                    self.note(rule_failed_sentence(rollout, problem))
                except RolloutBusy as problem:
                    self.busy.append(rollout)
                    self.note(error_text(problem))
                else:
                    self.report(outcome)

        await judge_verdicts.gather_all([judge_one(rollout) for rollout in rollouts])

    def _lock(self, rollout: str) -> contextlib.AbstractContextManager[None]:
        """Rules say the same whoever asks; a judge is asked by one at a time."""
        if self.client is None or self.request.dry:
            return contextlib.nullcontext()
        return lock_rollout(self.loaded.home, rollout)

    async def _rollout(self, rollout: str, at_once: asyncio.Semaphore) -> JudgeOutcome:
        with contextlib.closing(Reader(self.loaded.home)) as reader:
            trace = read_trace(reader, rollout)
            findings = rule_catalog.run_rules(trace)
            outcome = self._rules(reader, trace, findings)
            if self.client is None:
                return outcome
            outcome.author = f"judge:{self.client.name} template {self.template.version}"
            windows = judge_verdicts.plan_windows(trace, self.template, self.client)
            judge = WindowJudge(
                self.client,
                self.template,
                self.settings,
                JudgeCache(self.loaded.home),
                outcome.cost,
            )
            if self.request.dry:
                return _plan_outcome(outcome, windows, judge)
            errors = verdict_updates.error_steps(findings)
            try:
                async with report_progress(rollout, len(windows), self.note) as count_window:
                    outcome.judge = await judge_verdicts.judge_rollout(
                        trace, windows, judge, at_once, errors, count_window
                    )
            except EngineRefused as problem:
                raise _engine_refused(problem, rollout, self.client) from problem
            finally:
                self.cost.add(outcome.cost)
                self._record_cost(rollout, outcome.cost)
            outcome.kept_over_rules = _keeps_over_rules(
                verdict_updates.rule_masks(trace, findings), outcome.judge
            )
            if outcome.judge.steps:  # who said nothing at all replaces nothing
                outcome.judge_changed = self._store(reader, trace, outcome.author, outcome.judge)
            return outcome

    def _record_cost(self, rollout: str, cost: JudgeCost) -> None:
        if not cost.requests or self.client is None:
            return
        same_currency = self.settings.currency in ("", self.loaded.config.currency)
        record_review_cost(
            self.loaded.home,
            StoreReviewCost(
                request=uuid.uuid4().hex,
                rollout=rollout,
                reviewer=f"judge:{self.client.name}",
                requests=cost.requests,
                prompt_tokens=cost.prompt_tokens,
                sampled_tokens=cost.sampled_tokens,
                reckoned=cost.about,
                cost=cost.price(self.settings) if same_currency else cost.cost,
            ),
            self.note,
        )

    def _rules(
        self, reader: Reader, trace: RolloutTrace, findings: verdict_updates.RuleFindings
    ) -> JudgeOutcome:
        """What rules say, stored."""
        steps = verdict_updates.own_steps(trace)
        outcome = JudgeOutcome(trace.rollout, len(steps))
        if self.request.rules:
            outcome.rules = verdict_updates.rule_masks(trace, findings)
            outcome.by_rule = verdict_updates.mask_counts(trace, findings)
            if not self.request.dry:
                outcome.rules_changed = self._store_rules(reader, trace, findings)
        return outcome

    def _store_rules(
        self, reader: Reader, trace: RolloutTrace, findings: verdict_updates.RuleFindings
    ) -> int:
        """Have the recorder keep what rules say; the number of steps that changed."""
        stored = reader.run(read_verdicts_with_reasons(trace.rollout))
        sent = verdict_updates.rule_verdict_messages(trace, stored, findings)
        verdict_updates.send_verdicts(self.loaded.home, sent)
        return sum(span.last - span.first + 1 for message in sent for span in message.steps)

    def _store(self, reader: Reader, trace: RolloutTrace, by: str, verdicts: JudgeVerdicts) -> int:
        latest = {step: StepVerdict(*judged) for step, judged in verdicts.steps.items()}
        attempts = {step.step: step.attempt for step in trace.steps if not step.inherited}
        return store_judge_verdicts(self.loaded.home, reader, trace.rollout, by, attempts, latest)


def _keeps_over_rules(masked: Mapping[int, StepVerdict], verdicts: JudgeVerdicts) -> dict[int, str]:
    """Steps that the judge keeps although rules mask them, with the rules' reason."""
    return {
        step: masked[step].reason
        for step, judged in verdicts.steps.items()
        if judged.verdict == "keep" and step in masked
    }


def _engine_refused(problem: EngineRefused, rollout: str, client: JudgeClient) -> EngineRefused:
    """The engine's words, and what can be done where its window is smaller than was thought."""
    return EngineRefused(
        problem.cause,
        f"Earlier verdicts of the judge on {rollout} are kept.",
        problem.next or f"--window TOKENS, if it takes fewer than {client.window} at once",
    )


def _plan_outcome(
    outcome: JudgeOutcome, windows: Sequence[judge_prompt.JudgeWindow], judge: WindowJudge
) -> JudgeOutcome:
    """A dry run: what would be asked and what it would take."""
    new = [window for window in windows if not judge.is_cached(window)]
    outcome.planned_windows, outcome.cached_answers = len(windows), len(windows) - len(new)
    outcome.cost = replace(
        outcome.cost, questions=len(windows), cached=outcome.cached_answers, about=True,
        prompt_tokens=sum(window.tokens for window in new),
        sampled_tokens=sum(window.answer_tokens for window in new),
    )  # fmt: skip
    return outcome
