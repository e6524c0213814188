"""Rollouts as ATIF trajectories (v1.7), a document each, for Harbor and other readers.

System prompt and task come first, then an agent's step for each closed step, with its calls and
what it was shown; guidance follows the step that it was joined to, as a user's step. Data that ATIF
has no field for is stored in `extra.houston`, so `atif_import` restores the same rollout. Steps
that a branch shares are marked as copied context. Prompts and token ids are not written; summaries
of long contexts become system steps. Names of people are written only if the configuration allows
it. Secrets are taken out last.
"""

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from houston_daemon.interchange.atif_schema import (
    ATIF_USER,
    ATIF_VERSION,
    COPIED_REASON,
    DISPATCHED_REASON,
    HOUSTON_EXTRA,
    REASONING_LENGTH,
    AtifAgent,
    AtifCall,
    AtifFinalMetrics,
    AtifMetrics,
    AtifObservation,
    AtifResult,
    AtifStep,
    AtifTrajectory,
)
from houston_daemon.training.export.export_format import not_json_reason
from houston_shared.atomic_file import write_atomically
from houston_shared.errors import HoustonError, unwritable_as_error
from houston_shared.records import (
    ContextHead,
    DeliveredGuidance,
    ForkBody,
    RolloutSpec,
    StepRecord,
    ToolCall,
    ToolResult,
)
from houston_shared.secret_redaction import redact_all
from houston_shared.store import (
    annotation_queries,
    journal_events,
    removed_data_queries,
    rollout_queries,
    step_queries,
)
from houston_shared.store.annotation_queries import SourceVerdict
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.rollout_queries import RolloutRow
from houston_shared.store.store_reader import Reader

ATIF = "atif"
"""Name of the format on the command line."""
ATIF_DESCRIPTION = "Harbor and other readers of trajectories: each rollout whole, as a JSON file"
NOTHING_EXPORTED = "Nothing was exported."
_NO_SUMMARY = ForkBody(k=0, first_kept_step=0, summary=journal_events.ERASED_TEXT)


class WrittenTrajectory(NamedTuple):
    """One rollout that lies in the folder now."""

    rollout: str
    file: Path
    steps: int
    """Of the agent."""
    new: bool
    """False where the same file lay there already."""


def write_trajectories(
    reader: Reader,
    rollouts: Sequence[str],
    folder: Path,
    force: bool = False,
    people_by_name: bool = False,
) -> Iterator[WrittenTrajectory]:
    """Write `folder`/ROLLOUT.json for each rollout (whole ids), one after the other.

    force: replace other files of those names. people_by_name: as `[export]` allows. Raises
    HoustonError for what was erased, for a rollout without a step, and for what JSON cannot hold.
    """
    for rollout in rollouts:
        document = build_trajectory(reader, rollout, people_by_name)
        steps = sum(step.source == "agent" for step in document.steps)
        data = encode_trajectory(document, rollout)
        file = folder / f"{rollout}.json"
        with unwritable_as_error(file, NOTHING_EXPORTED):
            folder.mkdir(parents=True, exist_ok=True)
            earlier = file.read_bytes() if file.is_file() else None
            if earlier not in (None, data) and not force:
                raise HoustonError(
                    f"{file} already exists with different content.",
                    f"{rollout} was not exported.",
                    "Choose another --out, or replace it: --force",
                )
            if earlier != data:
                write_atomically(file, data)
        yield WrittenTrajectory(rollout, file, steps, earlier != data)


def encode_trajectory(document: AtifTrajectory, rollout: str) -> bytes:
    """The document as JSON, without secrets. Raises HoustonError for what JSON cannot hold."""
    plain = redact_all(msgspec.to_builtins(document))
    if reason := not_json_reason(plain):
        raise HoustonError(f"{rollout} holds {reason}.", NOTHING_EXPORTED)
    return msgspec.json.format(msgspec.json.encode(plain), indent=2) + b"\n"


def build_trajectory(reader: Reader, rollout: str, people_by_name: bool = False) -> AtifTrajectory:
    """The document of a rollout (a whole id), as it stands: closed steps only.

    Raises HoustonError where something of it was erased, or it has no closed step.
    """
    names = _PersonNames(people_by_name)
    document: AtifTrajectory = reader.run(_query_trajectory(rollout, names))
    return document


class _PersonNames:
    """What people are called: `person 1`, `person 2`, … unless their names may be written."""

    def __init__(self, by_name: bool) -> None:
        self._by_name = by_name
        self._numbers: dict[str, int] = {}

    def __call__(self, name: str) -> str:
        """Of one of them; `user` is nobody's name."""
        if self._by_name or name == ATIF_USER:
            return name
        return f"person {self._numbers.setdefault(name, len(self._numbers) + 1)}"


def _query_trajectory(rollout: str, names: _PersonNames) -> ReadPlan[AtifTrajectory]:
    row = yield from rollout_queries.find_rollout(rollout)
    if lost := (yield from removed_data_queries.find_missing_data(row.id)):
        raise HoustonError(lost.cause, NOTHING_EXPORTED, lost.command or f"Leave {row.id} out.")
    spec = yield from rollout_queries.read_rollout_spec(row)
    head = yield from rollout_queries.read_rollout_head(row)
    records = yield from step_queries.read_steps(row.id)
    closed = [record for record in records if record.observation is not None]
    if head is None or not closed:
        raise HoustonError(f"{row.id} has no closed step.", NOTHING_EXPORTED)
    verdicts = yield from annotation_queries.read_verdicts_with_reasons(row.id)
    summaries: dict[int, ForkBody] = {}
    for fork in (yield from rollout_queries.list_forks(row.id)):
        body = yield from journal_events.read_record_at(fork.seq, ForkBody, _NO_SUMMARY)
        summaries[fork.step] = body
    model = _model_name(spec)
    steps = _head_steps(head)
    for record in closed:
        if record.step in summaries:
            steps.append(_summary_step(summaries[record.step]))
        verdict = next(iter(verdicts.get(record.step, ())), None)
        at = _time_of(record, spec)
        steps.append(_agent_step(record, model, at, verdict, names))
        steps += [_guidance_step(guidance, at, names) for guidance in record.guidance]
    numbered = [replace(step, step_id=number) for number, step in enumerate(steps, 1)]
    return AtifTrajectory(
        schema_version=ATIF_VERSION,
        session_id=row.id,
        trajectory_id=row.id,
        agent=_agent(spec, head, model),
        steps=numbered,
        notes=_notes(row, len(summaries)),
        final_metrics=_final_metrics(closed, len(numbered)),
        extra={HOUSTON_EXTRA: _rollout_extra(row, spec)},
    )


def _model_name(spec: RolloutSpec) -> str:
    """What sampled, as far as it has a name: the policy, else the engine's model."""
    return spec.policy or str(spec.engine_settings.get("model") or spec.engine)


def _agent(spec: RolloutSpec, head: ContextHead, model: str) -> AtifAgent:
    name, release = "houston", version("houston-agents")
    if spec.elsewhere is not None:
        name, _, release = spec.elsewhere.agent.rpartition(" ")
        name, release = (name, release) if name else (release or "unknown", "unknown")
    return AtifAgent(
        name=name,
        version=release,
        model_name=model,
        tool_definitions=[*head.tools] or None,
        extra={HOUSTON_EXTRA: {"engine": spec.engine}},
    )


def _rollout_extra(row: RolloutRow, spec: RolloutSpec) -> dict[str, Any]:
    facts = {
        "rollout": row.id,
        "task": row.task,
        "state": row.state,
        "reason": row.reason,
        "best_score": row.best_score,
        "last_score": row.last_score,
        "sampled_elsewhere": spec.elsewhere.format if spec.elsewhere else "",
    }
    return {name: value for name, value in facts.items() if value not in ("", None)}


def _notes(row: RolloutRow, summaries: int) -> str | None:
    notes = []
    if summaries:
        notes.append(
            f"The agent's context was summarised {summaries} times: steps before a summary (a"
            " system step) were not whole in the prompts after it."
        )
    if row.state not in ("finished", "failed", "cancelled"):
        notes.append(f"The rollout had not ended ({row.state}).")
    return " ".join(notes) or None


def _head_steps(head: ContextHead) -> list[AtifStep]:
    steps = [AtifStep(step_id=0, source="user", message=head.task)]
    if head.system:
        steps.insert(0, AtifStep(step_id=0, source="system", message=head.system))
    return steps


def _summary_step(fork: ForkBody) -> AtifStep:
    own: dict[str, Any] = {"k": fork.k, "first_kept_step": fork.first_kept_step}
    own |= {"guidance": fork.guidance} if fork.guidance else {}
    own |= {"shortened": fork.shortened} if fork.shortened else {}
    own |= {"mechanical": True} if fork.mechanical else {}
    return AtifStep(
        step_id=0,
        source="system",
        message=fork.summary,
        extra={HOUSTON_EXTRA: {"summary": True, "fork": own}},
    )


def _verdict_extra(verdict: SourceVerdict | None, names: _PersonNames) -> dict[str, str]:
    """The verdict that counts, and whose it is; empty without one."""
    if verdict is None:
        return {}
    by = names(verdict.by) if verdict.source == "human" else verdict.by
    return {
        "verdict": verdict.verdict,
        "by": f"{verdict.source} {by}",
        "reason": verdict.reason,
    }


def _time_of(record: StepRecord, spec: RolloutSpec) -> str | None:
    """When it was; of what was sampled elsewhere as its file says, if it does."""
    timestamp = record.sample.parameters.get("timestamp")
    return str(timestamp) if timestamp else (record.at if spec.elsewhere is None else None)


def _guidance_step(message: DeliveredGuidance, at: str | None, names: _PersonNames) -> AtifStep:
    extra = {HOUSTON_EXTRA: {"author": names(message.author), "guidance": message.id}}
    return AtifStep(step_id=0, source="user", message=message.text, timestamp=at, extra=extra)


def _agent_step(
    record: StepRecord,
    model: str,
    at: str | None,
    verdict: SourceVerdict | None,
    names: _PersonNames,
) -> AtifStep:
    sample = record.sample
    reason = verdict.reason if verdict else ""
    verdict_extra = _verdict_extra(verdict, names)
    reasoning, message = _split_thought(record)
    own: dict[str, Any] = {"step": record.step}
    if sample.finish_reason != "stop":
        own["finish_reason"] = sample.finish_reason
    if sample.malformed:
        own["malformed"] = sample.malformed
    if sample.drift not in ("clean", "forked"):  # where contexts begin, a summary says
        own["drift"] = sample.drift
    if verdict_extra:
        own["verdict"] = verdict_extra
    sampled_by = sample.policy or model
    return AtifStep(
        step_id=0,
        source="agent",
        message=message,
        reasoning_content=reasoning or None,
        timestamp=at,
        model_name=None if sampled_by == model else sampled_by,
        tool_calls=[_call(call) for call in sample.calls] or None,
        observation=_observation(record),
        metrics=_metrics(record),
        is_copied_context=True if record.inherited or reason == COPIED_REASON else None,
        llm_call_count=0 if reason == DISPATCHED_REASON else 1,
        extra={HOUSTON_EXTRA: own},
    )


def _split_thought(record: StepRecord) -> tuple[str, str]:
    """Reasoning and message of an imported answer, as its file had them; else all is message."""
    thought = record.sample.thought
    length = record.sample.parameters.get(REASONING_LENGTH)
    if not isinstance(length, int):
        return "", thought
    reasoning, message = thought[:length], thought[length:]
    if message and not message.startswith("\n\n"):  # a secret was taken out meanwhile
        return "", thought
    return reasoning, message.removeprefix("\n\n")


def _call(call: ToolCall) -> AtifCall:
    extra = {HOUSTON_EXTRA: {"error": call.error}} if call.error else None
    return AtifCall(
        tool_call_id=call.id, function_name=call.name, arguments=call.arguments, extra=extra
    )


def _observation(record: StepRecord) -> AtifObservation | None:
    """Results of the calls, evaluations by the loop, and what else the agent was shown."""
    calls = {call.id for call in record.sample.calls}
    results = [_result(result, result.call.id in calls) for result in record.results]
    if record.observation is not None and record.observation.tail:
        results.append(AtifResult(content=record.observation.tail))
    return AtifObservation(results=results) if results else None


def _result(result: ToolResult, is_call_result: bool) -> AtifResult:
    if is_call_result:
        own: dict[str, Any] = {"kind": result.kind, "success": result.success}
        if result.fields:
            own["fields"] = result.fields
        return AtifResult(
            source_call_id=result.call.id, content=result.text, extra={HOUSTON_EXTRA: own}
        )
    evaluation = {
        "id": result.call.id,
        "name": result.call.name,
        "kind": result.kind,
        "success": result.success,
        "fields": result.fields,
    }
    return AtifResult(content=result.text, extra={HOUSTON_EXTRA: {"evaluation": evaluation}})


def _metrics(record: StepRecord) -> AtifMetrics | None:
    sample = record.sample
    cost = sample.parameters.get("cost_usd")
    reasoning = sample.reasoning_tokens
    metrics = AtifMetrics(
        prompt_tokens=sample.prompt_tokens,
        completion_tokens=_sampled_tokens(record),
        cached_tokens=sample.cached_tokens,
        cost_usd=cost if isinstance(cost, int | float) else None,
        extra=None if reasoning is None else {"reasoning_tokens": reasoning},
    )
    return None if metrics == AtifMetrics() else metrics


def _sampled_tokens(record: StepRecord) -> int | None:
    ids = record.sample.token_ids
    return record.sample.completion_tokens if ids is None else len(ids)


def _final_metrics(records: Sequence[StepRecord], steps: int) -> AtifFinalMetrics:
    def total(values: Sequence[int | None]) -> int | None:
        counted = [value for value in values if value is not None]
        return sum(counted) if counted else None

    return AtifFinalMetrics(
        total_prompt_tokens=total([record.sample.prompt_tokens for record in records]),
        total_completion_tokens=total([_sampled_tokens(record) for record in records]),
        total_cached_tokens=total([record.sample.cached_tokens for record in records]),
        total_steps=steps,
    )
