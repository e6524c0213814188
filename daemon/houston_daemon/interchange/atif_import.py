"""An ATIF trajectory as a rollout: what each kind of step becomes.

Reads one document, or the trial folder of a Harbor job (its `agent/trajectory.json`, with the
rewards of its `result.json`). What Houston itself wrote (`atif_export`) is restored as it was:
kinds of results, guidance with its author, summaries in their place. Everything else follows the
format's own rules; what a rollout has no place for is counted in `SampledElsewhere.left_out`.
"""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec

from houston_daemon.interchange.atif_schema import (
    ATIF_PREFIX,
    ATIF_USER,
    COPIED_REASON,
    DISPATCHED_REASON,
    HOUSTON_EXTRA,
    REASONING_LENGTH,
    AtifContent,
    AtifResult,
    AtifStep,
    AtifTrajectory,
)
from houston_daemon.interchange.imported_rollout import (
    NOTHING_IMPORTED,
    ImportedRollout,
    foreign_sample,
)
from houston_shared.errors import HoustonError
from houston_shared.records import Drift, ForkBody, SampledElsewhere, ToolCall, ToolResult

TRAJECTORY_FILE = Path("agent/trajectory.json")
"""Where a trial of Harbor keeps its trajectory."""
RESULT_FILE = "result.json"
"""What a trial came to, beside the folder `agent`."""
REWARD_NAME = "reward"
"""The reward that counts among those of a verifier, where there are several."""


class _Rewards(msgspec.Struct):
    rewards: dict[str, float] | None = None


class _Failure(msgspec.Struct):
    exception_type: str
    exception_message: str = ""


class TrialResult(msgspec.Struct):
    """Of a trial's `result.json`, what a rollout has a place for."""

    task_name: str
    verifier_result: _Rewards | None = None
    exception_info: _Failure | None = None


def read_trajectory(data: bytes, name: str) -> AtifTrajectory:
    """The document. name: of the file, for errors. Raises HoustonError for what is none."""
    try:
        document = msgspec.json.decode(data, type=AtifTrajectory)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise HoustonError(
            f"{name} is not an ATIF trajectory: {problem}.",
            NOTHING_IMPORTED,
            "Name a trajectory in ATIF, the folder of a Harbor trial or a log of inspect_ai.",
        ) from None
    if not document.schema_version.startswith(ATIF_PREFIX):
        raise HoustonError(
            f"{name} has the version {document.schema_version!r}; only {ATIF_PREFIX}0 and "
            "later can be read.",
            NOTHING_IMPORTED,
        )
    for number, step in enumerate(document.steps, 1):
        if step.step_id != number:
            raise HoustonError(
                f"{name}: steps[{number - 1}].step_id is {step.step_id}, not {number}: the steps"
                " are not numbered from 1 without gaps.",
                NOTHING_IMPORTED,
            )
    return document


def read_trial_result(data: bytes, name: str) -> TrialResult:
    """What a trial came to. Raises HoustonError."""
    try:
        return msgspec.json.decode(data, type=TrialResult)
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise HoustonError(
            f"{name} is not a result of a Harbor trial: {problem}.", NOTHING_IMPORTED
        ) from None


def convert_trajectory(
    document: AtifTrajectory, file: str, trial: TrialResult | None = None
) -> ImportedRollout:
    """The rollout that it is. file: its name. trial: what it came to, where that is known."""
    agent = document.agent
    source = SampledElsewhere(
        format=document.schema_version,
        agent=" ".join(filter(None, (agent.name, agent.version))),
        id=document.trajectory_id or document.session_id or "",
        file=file,
    )
    rollout = ImportedRollout(source, agent.model_name or "")
    rollout.tools = tuple(agent.tool_definitions or ())
    for step in document.steps:
        _take_step(rollout, step)
    if document.subagent_trajectories:
        for _ in document.subagent_trajectories:
            rollout.leave_out("trajectory of a subagent")
    if document.continued_trajectory_ref:
        rollout.leave_out(f"continuation in {document.continued_trajectory_ref}")
    own = _houston_extra(document.extra)
    if own.get("state") in ("finished", "failed", "cancelled"):
        rollout.state, rollout.reason = own["state"], str(own.get("reason", ""))
    if trial is not None:
        _take_result(rollout, trial)
    return rollout


def task_of(document: AtifTrajectory, trial: TrialResult | None) -> str:
    """Name of the task, as far as anything says it."""
    named = (
        trial.task_name.rpartition("/")[2]
        if trial
        else str(_houston_extra(document.extra).get("task", ""))
    )
    return named or document.agent.name


def _houston_extra(extra: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """What Houston wrote into an `extra`; empty where it is another program's."""
    houston_extra = (extra or {}).get(HOUSTON_EXTRA)
    return houston_extra if isinstance(houston_extra, Mapping) else {}


def _take_step(rollout: ImportedRollout, step: AtifStep) -> None:
    own = _houston_extra(step.extra)
    text = _text(rollout, step.message)
    if own.get("summary"):
        rollout.summary(_fork(own, text))
        return
    if step.metrics is not None and step.metrics.completion_token_ids:
        rollout.leave_out("token ids of an answer")
    if step.source == "agent":
        rollout.answer(_sample(step, text), _mask(step, own))
    elif step.source == "user":
        guidance = str(own.get("guidance") or "")
        rollout.user(text, str(own.get("author") or ATIF_USER), guidance)
    else:
        rollout.system(text)
    for result in step.observation.results if step.observation else ():
        _take_result_of_call(rollout, result)
    if step.timestamp and (moment := _unix_time(step.timestamp)) is not None:
        rollout.at(moment)


class _OwnFork(msgspec.Struct):
    """Of a summary of ours what ATIF has no field for; without it none can be placed."""

    k: int = 0
    first_kept_step: int = 0
    guidance: tuple[str, ...] = ()
    shortened: dict[str, Annotated[int, msgspec.Meta(ge=0, lt=2**31)]] = {}
    mechanical: bool = False


def _fork(own: Mapping[str, Any], text: str) -> ForkBody:
    """The fork that a summary of ours began; k is 0 where the file does not say enough."""
    try:
        own_fork = msgspec.convert(own.get("fork") or {}, _OwnFork)
    except msgspec.ValidationError:
        own_fork = _OwnFork()
    return ForkBody(summary=text, **msgspec.structs.asdict(own_fork))


def _sample(step: AtifStep, text: str) -> Any:
    metrics, own = step.metrics, _houston_extra(step.extra)
    thought = "\n\n".join(filter(None, (step.reasoning_content, text)))
    calls = tuple(
        ToolCall(
            id=call.tool_call_id,
            name=call.function_name,
            arguments=call.arguments,
            error=str(_houston_extra(call.extra).get("error", "")),
        )
        for call in step.tool_calls or ()
    )
    tokens = {
        "prompt_tokens": metrics.prompt_tokens,
        "cached_tokens": metrics.cached_tokens,
        "completion_tokens": metrics.completion_tokens,
    } if metrics else {}  # fmt: skip
    return foreign_sample(
        thought,
        calls,
        step.model_name or "",
        finish_reason=str(own.get("finish_reason") or "stop"),
        malformed=str(own.get("malformed") or ""),
        drift=own["drift"] if own.get("drift") in get_args(Drift) else "clean",
        tokens=tokens,
        facts={
            "timestamp": step.timestamp,
            "cost_usd": metrics.cost_usd if metrics else None,
            REASONING_LENGTH: len(step.reasoning_content or "") or None,
        },
    )


def _mask(step: AtifStep, own: Mapping[str, Any]) -> str:
    """Why nothing of a step may be trained; empty where it may."""
    if step.is_copied_context:
        return COPIED_REASON
    if step.llm_call_count == 0:
        return DISPATCHED_REASON
    verdict = own.get("verdict")
    if isinstance(verdict, Mapping) and verdict.get("verdict") == "mask":
        return f"masked there by {verdict.get('by', '')}: {verdict.get('reason', '')}".rstrip(": ")
    return ""


def _take_result_of_call(rollout: ImportedRollout, result: AtifResult) -> None:
    own, text = _houston_extra(result.extra), _text(rollout, result.content)
    for _ in result.subagent_trajectory_ref or ():
        rollout.leave_out("reference to a subagent")
    if isinstance(own.get("evaluation"), Mapping):
        rollout.scored_by_loop(_evaluation(own["evaluation"], text))
    elif result.source_call_id is None:
        rollout.observe(text)
    else:
        rollout.result(
            result.source_call_id,
            text,
            success=bool(own.get("success", True)),
            kind=str(own.get("kind") or "result"),
            fields=own["fields"] if isinstance(own.get("fields"), Mapping) else {},
        )


def _evaluation(own: Mapping[str, Any], text: str) -> ToolResult:
    """An evaluation of ours by the loop, which answers no call."""
    call = ToolCall(id=str(own.get("id", "")), name=str(own.get("name", "")), arguments={})
    fields = own.get("fields")
    return ToolResult(
        call=call,
        kind="eval",
        success=bool(own.get("success", True)),
        text=text,
        fields=dict(fields) if isinstance(fields, Mapping) else {},
    )


def _text(rollout: ImportedRollout, content: AtifContent | None) -> str:
    """The text of a message; pictures and sounds become a line that names them."""
    if content is None or isinstance(content, str):
        return content or ""
    lines = []
    for part in content:
        if part.text is None:
            rollout.leave_out(part.type)
            place = part.source.path if part.source else ""
            lines.append(f"[{part.type}: {place}]" if place else f"[{part.type}]")
        else:
            lines.append(part.text)
    return "\n".join(lines)


def _unix_time(timestamp: str) -> float | None:
    """Seconds since 1970; None for what is no time."""
    try:
        return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return None


def _take_result(rollout: ImportedRollout, trial: TrialResult) -> None:
    rewards = (trial.verifier_result.rewards if trial.verifier_result else None) or {}
    if rewards and rollout.steps:
        name = REWARD_NAME if REWARD_NAME in rewards else next(iter(rewards))
        reward_text = ", ".join(f"{key} {value:g}" for key, value in rewards.items())
        rollout.score(rewards[name], f"The verifier gave: {reward_text}", rewards)
    if trial.exception_info is not None:
        failed = trial.exception_info
        rollout.state = "failed"
        rollout.reason = f"{failed.exception_type}: {failed.exception_message}".rstrip(": ")
