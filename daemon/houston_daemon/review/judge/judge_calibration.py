"""How good rules and judges are: agreement with people, and known cases that a template must
judge right.

Over every step that a person judged: precision, recall, F1, Cohen's kappa (1960) and Wilson's
bounds (1927) of masks. Cases are short rollouts in YAML with one step whose verdict is known, two
for each criterion of the template. Only `houston judge` commands use it.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec
import yaml

from houston_daemon.review import verdict_updates
from houston_daemon.review.judge import judge_verdicts
from houston_daemon.review.judge.judge_client import WindowJudge
from houston_daemon.review.judge.judge_verdicts import would_keep
from houston_daemon.review.rollout_trace import RolloutTrace, TextsUnavailable, read_trace
from houston_daemon.review.rules import rule_catalog
from houston_daemon.review.rules.rule_catalog import RuleFailed, RuleMask
from houston_shared import verdict_precedence
from houston_shared.errors import ConfigurationError
from houston_shared.records import (
    DeliveredGuidance,
    ObservationBody,
    SampleBody,
    StepRecord,
    ToolCall,
    ToolResult,
)
from houston_shared.store import annotation_queries
from houston_shared.store.annotation_queries import SourceVerdict
from houston_shared.store.journal_events import ReadPlan, RunSql
from houston_shared.store.rollout_queries import ForkRow
from houston_shared.store.store_reader import Reader
from houston_shared.task import BudgetSettings, Task
from houston_shared.wilson_interval import ConfidenceInterval, wilson_interval

FEW_STEPS = 30
"""Steps judged by people below which the figures say little."""
FEW_MASKED_STEPS = 10
"""The same for steps that people masked, of which recall is a share."""


class VerdictAgreement(NamedTuple):
    """One source compared with people, on the steps that both judged."""

    both: int
    """Masked by both."""
    only_source: int
    """Masked by the source, kept by people."""
    only_people: int
    """Kept by the source, masked by people."""
    neither: int

    @property
    def steps(self) -> int:
        """Steps that are compared."""
        return sum(self)

    @property
    def precision(self) -> ConfidenceInterval:
        """Of what the source masked, the share that people masked."""
        return wilson_interval(self.both, self.both + self.only_source)

    @property
    def recall(self) -> ConfidenceInterval:
        """Of what people masked, the share that the source masked."""
        return wilson_interval(self.both, self.both + self.only_people)

    @property
    def agreed(self) -> ConfidenceInterval:
        """The share of steps on which both say the same."""
        return wilson_interval(self.both + self.neither, self.steps)

    @property
    def f1(self) -> float | None:
        """Harmonic mean of precision and recall; None where neither masked anything."""
        masked = 2 * self.both + self.only_source + self.only_people
        return 2 * self.both / masked if masked else None

    @property
    def kappa(self) -> float | None:
        """Agreement beyond chance; None where chance alone agrees always."""
        if not self.steps:
            return None
        source = (self.both + self.only_source) / self.steps
        people = (self.both + self.only_people) / self.steps
        chance = source * people + (1 - source) * (1 - people)
        observed = (self.both + self.neither) / self.steps
        return (observed - chance) / (1 - chance) if chance < 1 else None

    @property
    def few(self) -> str:
        """Why the figures say little; empty where there is enough."""
        masked = self.both + self.only_people
        if self.steps < FEW_STEPS:
            return f"only {self.steps} steps were judged by people; {FEW_STEPS} say something"
        if masked < FEW_MASKED_STEPS:
            return f"people masked only {masked} of these steps; {FEW_MASKED_STEPS} say something"
        return ""

    def as_json(self) -> dict[str, Any]:
        """The same as an object."""
        return {
            "steps": self.steps,
            "both_mask": self.both,
            "only_source_masks": self.only_source,
            "only_people_mask": self.only_people,
            "both_keep": self.neither,
            "precision": self.precision.as_json(None),
            "recall": self.recall.as_json(None),
            "agreement": self.agreed.as_json(None),
            "f1": self.f1,
            "kappa": self.kappa,
            "few": self.few,
        }


def compare_verdicts(pairs: Iterable[tuple[bool, bool]]) -> VerdictAgreement:
    """Counts of pairs (source masks, people mask)."""
    counts = Counter(pairs)
    return VerdictAgreement(
        both=counts[True, True],
        only_source=counts[True, False],
        only_people=counts[False, True],
        neither=counts[False, False],
    )


RULES_SOURCE, JUDGE_SOURCE, COMBINED_SOURCE = "all rules", "judge", "rules and judge"


class CalibrationReport(NamedTuple):
    """How sources stand beside people."""

    rollouts: int
    """That hold a step which a person judged."""
    steps: int
    masked: int
    """Of these, masked by people."""
    by: Mapping[str, VerdictAgreement]
    """Each rule as `name@version`, all rules together, the judge (each by its name where there are
    several), and what would count without people."""
    passed: Sequence[str] = ()
    """Rollouts with steps that people judged, whose texts are gone: they are left out."""
    failed: Mapping[str, RuleFailed] = MappingProxyType({})
    """The same of rollouts on which a rule failed, and how."""


VerdictPairs = dict[str, list[tuple[bool, bool]]]


def judged_by_people() -> ReadPlan[list[str]]:
    """Rollouts with steps that a person judged, in the order of their ids."""
    rows = yield RunSql(
        "SELECT DISTINCT rollout FROM verdicts WHERE source = 'human' ORDER BY rollout"
    )
    return [str(row[0]) for row in rows]


def calibrate(reader: Reader, rollouts: Sequence[str]) -> CalibrationReport:
    """Compare over these rollouts (whole ids), but those whose texts are gone, or on which a rule
    fails. Raises HoustonError."""
    pairs: VerdictPairs = defaultdict(list)
    people: list[bool] = []
    passed: list[str] = []
    failed: dict[str, RuleFailed] = {}
    used = 0
    for rollout in rollouts:
        before = len(people)
        try:
            people += _compare_rollout(reader, rollout, pairs)
        except TextsUnavailable:
            passed.append(rollout)
        except RuleFailed as problem:
            failed[rollout] = problem
        used += len(people) > before
    judges = [name for name in pairs if name.startswith(f"{JUDGE_SOURCE}:")]
    if len(judges) == 1:
        del pairs[judges[0]]  # the same as `judge`
    by = {name: compare_verdicts(judged) for name, judged in pairs.items()}
    return CalibrationReport(used, len(people), sum(people), by, passed, failed)


def _compare_rollout(reader: Reader, rollout: str, pairs: VerdictPairs) -> Iterator[bool]:
    """Whether people masked, for each of a rollout's own steps that they judged."""
    current_verdicts = reader.run(annotation_queries.read_verdicts_with_reasons(rollout))
    by_source = {
        step: {row.source: row for row in rows}
        for step, rows in current_verdicts.items()
        if any(row.source == "human" for row in rows)
    }
    if not by_source:
        return
    trace = read_trace(reader, rollout)
    rule_masks = rule_catalog.run_rules(trace)
    mine = set(verdict_updates.own_steps(trace))
    rules = rule_catalog.load_rules(trace.task.rules)
    names = [f"{name}@{rule.version}" for name, rule in rules.items()]
    for step, sources in sorted(by_source.items()):
        if step not in mine:
            continue
        people = sources["human"].verdict == "mask"
        masked_by = rule_masks.get(step, [])
        hits = {f"{mask.rule}@{mask.version}" for mask in masked_by}
        for name in names:
            pairs[name].append((name in hits, people))
        pairs[RULES_SOURCE].append((bool(hits), people))
        judge = sources.get("judge")
        if judge is not None:
            masks = judge.verdict == "mask" and not would_keep(judge.reason)
            pairs[JUDGE_SOURCE].append((masks, people))
            pairs[judge.by].append((masks, people))
        pairs[COMBINED_SOURCE].append((_masked_without_people(masked_by, judge), people))
        yield people


def _masked_without_people(by_rules: Sequence[RuleMask], judge: SourceVerdict | None) -> bool:
    """Whether a step is masked where no person speaks."""
    error = any(mask.rule == verdict_precedence.ERROR_RULE for mask in by_rules)
    ranks = [(verdict_precedence.verdict_rank("rule", False, error), True)] if by_rules else []
    if judge is not None:
        keeps = judge.verdict == "keep"
        ranks.append((verdict_precedence.verdict_rank("judge", keeps, False), not keeps))
    return min(ranks)[1] if ranks else False


CASES_FOLDER = Path(__file__).with_name("cases")
CASE_TASK = "Reach the best score that you can; eval submits output.jsonl."


class CaseStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step of a case."""

    thought: str
    observation: str
    call: str = ""
    """Name of its call; empty for a step without one."""
    arguments: dict[str, Any] = {}
    failed: bool = False
    score: float | None = None
    """What its submission gave."""
    guidance: str = ""
    """What a person said that was heard with its observation."""


class _CaseRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    meant: Literal["keep", "mask"]
    step: int
    """Whose verdict is looked at, from 1."""
    steps: list[CaseStep]
    holds: list[str] = []
    """Texts that the judge must be shown to be able to tell."""
    task: str = CASE_TASK
    gpus: int = 0
    summary_before: int = 0
    """Step before which the context was summarised; 0 for none."""


class _CasesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    criterion: str
    cases: list[_CaseRecord]


@dataclass(frozen=True, slots=True)
class JudgeCase:
    """One case as a rollout."""

    criterion: str
    name: str
    meant: Literal["keep", "mask"]
    step: int
    holds: tuple[str, ...]
    trace: RolloutTrace


def load_cases(folder: Path | None = None) -> list[JudgeCase]:
    """All cases of a folder, the packaged one unless named, by file and place.

    Raises ConfigurationError that names the file and what is wrong.
    """
    place = folder or CASES_FOLDER
    files = sorted(place.glob("*.yaml"))
    if not files:
        raise ConfigurationError(f"There are no cases (*.yaml) in {place}.")
    return [case for file in files for case in _cases_of_file(file)]


def _cases_of_file(file: Path) -> Iterator[JudgeCase]:
    try:
        file_record = msgspec.convert(yaml.safe_load(file.read_text(encoding="utf-8")), _CasesFile)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as problem:
        reason = " ".join(str(problem).split())
        raise ConfigurationError(f"{file} is not a valid file of cases: {reason}.") from None
    for place, record in enumerate(file_record.cases, 1):
        if not 1 <= record.step <= len(record.steps):
            raise ConfigurationError(f"{file}: {record.name!r} has no step {record.step}.")
        rollout = f"{file.stem}-{place}"
        yield JudgeCase(
            file_record.criterion,
            record.name,
            record.meant,
            record.step,
            tuple(record.holds),
            _case_trace(rollout, record),
        )


def _case_trace(rollout: str, case: _CaseRecord) -> RolloutTrace:
    return RolloutTrace(
        rollout=rollout,
        task=Task(name="case", instructions=case.task, budget=BudgetSettings()),
        instructions=case.task,
        gpus={"local": case.gpus} if case.gpus else {},
        steps=[_case_step(number, step) for number, step in enumerate(case.steps, 1)],
        forks=_case_forks(case),
        ended=True,
    )


def _case_forks(case: _CaseRecord) -> Sequence[ForkRow]:
    if not case.summary_before:
        return ()
    k = case.summary_before - 1
    return (
        ForkRow(
            number=1, step=case.summary_before, k=k, first_kept_step=k + 1, mechanical=0,
            sample_seq=None, seq=0,
        ),
    )  # fmt: skip


def _case_step(number: int, step: CaseStep) -> StepRecord:
    calls = (
        (ToolCall(id=f"{number}.0", name=step.call, arguments=step.arguments),) if step.call else ()
    )
    fields: Mapping[str, Any] = {}
    if step.score is not None:
        fields = {"overall_score": step.score, "state": "scored"}
    results = [
        ToolResult(
            call=call, kind="eval" if call.name == "eval" else "command", success=not step.failed,
            text=step.observation, fields=dict(fields),
        )
        for call in calls
    ]  # fmt: skip
    guidance = (
        (DeliveredGuidance(id=f"g{number}", author="person", text=step.guidance),)
        if step.guidance
        else ()
    )
    return StepRecord(
        step=number,
        attempt=1,
        sample_seq=number,
        sample=SampleBody(
            role="policy", parent_seq=None, kept=0, new_prompt_ids=None, token_ids=None,
            logprobs=None, logprob_kind="none", finish_reason="stop", policy="", engine="",
            parameters={}, drift="clean", thought=step.thought, calls=calls,
        ),
        intents=(),
        results=tuple(results),
        observation=ObservationBody(tail="" if calls else step.observation),
        guidance=guidance,
        at="2026-01-01T00:00:00Z",
        active_seconds=60.0 * number,
    )  # fmt: skip


class CaseResult(NamedTuple):
    """One case and what was said of its step."""

    case: JudgeCase
    verdict: str
    """`keep`, `mask` or `undecided`."""
    reason: str

    @property
    def as_meant(self) -> bool:
        """Whether it is what a good judge says."""
        return self.verdict == self.case.meant


async def judge_cases(
    cases: Sequence[JudgeCase], judge: WindowJudge, concurrency: int
) -> list[CaseResult]:
    """Ask about every case. Raises HoustonError where the engine is away or a window too small."""
    turn = asyncio.Semaphore(concurrency)

    async def judge_case(case: JudgeCase) -> CaseResult:
        windows = judge_verdicts.plan_windows(case.trace, judge.template, judge.client)
        verdicts = await judge_verdicts.judge_rollout(
            case.trace, windows, judge, turn, {}, lambda _: None
        )
        judged = verdicts.steps.get(case.step)
        if judged is None:
            return CaseResult(case, "undecided", verdicts.undecided.get(case.step, ""))
        return CaseResult(case, judged.verdict, judged.reason)

    return await judge_verdicts.gather_all([judge_case(case) for case in cases])
