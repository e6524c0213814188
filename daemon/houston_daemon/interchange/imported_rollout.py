"""Builds a rollout from what another program recorded, message by message.

Turns a conversation into steps: what was said before the first answer is the head, an answer opens
a step, results and other text close it, and later messages of a person are guidance. Every call
gets a result, text cannot forge a guidance tag, and secrets are taken out. It knows no file format
(`atif_import`, `inspect_import`) and stores nothing: the recorder does.
"""

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec.structs import replace

from houston_daemon.agent.rollout_budgets import EvaluationScores
from houston_daemon.importers.imported_task import make_task_name, tables_to_toml
from houston_daemon.review.attention_catalog import SIGNALS_VERSION, AttentionTracker
from houston_daemon.review.attention_window import RemainingBudgets, observe_step
from houston_shared.control_messages import (
    MAX_IMPORTED_STEPS,
    ImportedGuidance,
    ImportedStep,
    ImportRollout,
)
from houston_shared.errors import HoustonError
from houston_shared.guidance_tag import GUIDANCE_TEXT_LIMIT, PERSON_RULE, disarm
from houston_shared.records import (
    ELSEWHERE,
    EVALUATION_CALL,
    ContextHead,
    Drift,
    ForkBody,
    ObservationBody,
    RolloutSpec,
    SampleBody,
    SampledElsewhere,
    TaskRecord,
    ToolCall,
    ToolResult,
)
from houston_shared.secret_redaction import redact, redact_all
from houston_shared.task import AttentionSettings
from houston_shared.wire import FRAME_LIMIT, encode_message

NOTHING_IMPORTED = "Nothing of it was imported."
NO_RESULT = "[the file has no result of this call]"
NO_INSTRUCTIONS = "[the file has no instructions]"
SCORE_SCALE = 100.0
"""Points of a score of 1."""
_MAX_OMISSIONS = 20
_NAME_SPACE = re.compile(r"\s+")


@dataclass(slots=True)
class _OpenStep:
    """The newest answer, and what has followed it."""

    sample: SampleBody
    mask: str
    calls: dict[str, ToolCall]
    """By the file's own id of each."""
    results: dict[str, ToolResult] = field(default_factory=dict)
    """By the file's id of the call."""
    scores: list[ToolResult] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    guidance: list[ImportedGuidance] = field(default_factory=list)
    active_us: int = 0
    fork: ForkBody | None = None
    """The summary that its context began with, where that began with this step."""


def foreign_sample(
    thought: str,
    calls: tuple[ToolCall, ...] = (),
    model: str = "",
    *,
    finish_reason: str = "stop",
    malformed: str = "",
    drift: Drift = "clean",
    tokens: Mapping[str, int | None] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> SampleBody:
    """An answer that was sampled elsewhere: without ids and log-probabilities.

    tokens: `prompt_tokens`, `cached_tokens`, `completion_tokens`, `reasoning_tokens`, as far as
    the file counts them. facts: what else it says of the request, JSON values.
    """
    counts = tokens or {}
    return SampleBody(
        role="policy",
        parent_seq=None,
        kept=0,
        new_prompt_ids=None,
        token_ids=None,
        logprobs=None,
        logprob_kind="none",
        finish_reason=finish_reason,
        policy=model,
        engine=ELSEWHERE,
        parameters={key: value for key, value in (facts or {}).items() if value is not None},
        drift=drift,
        thought=thought,
        calls=calls,
        malformed=malformed,
        prompt_tokens=counts.get("prompt_tokens"),
        cached_tokens=counts.get("cached_tokens"),
        completion_tokens=counts.get("completion_tokens"),
        reasoning_tokens=counts.get("reasoning_tokens"),
    )


class ImportedRollout:
    """One trajectory on its way into the store."""

    def __init__(self, source: SampledElsewhere, model: str = "") -> None:
        """model: of the answers that name none."""
        self.source = source
        self.model = model
        self.tools: tuple[dict[str, Any], ...] = ()
        """Schemas in OpenAI's form."""
        self.state: Literal["finished", "failed", "cancelled"] = "finished"
        self.reason = ""
        self._system: list[str] = []
        self._task: list[str] = []
        self._open: _OpenStep | None = None
        self._fork: ForkBody | None = None
        self._first_kept = 1
        self._steps: list[ImportedStep] = []
        self._left_out: Counter[str] = Counter()
        self._first_seconds: float | None = None
        self._attention = AttentionTracker(AttentionSettings())
        self._scores = EvaluationScores()

    @property
    def steps(self) -> int:
        """Answers so far."""
        return len(self._steps) + (self._open is not None)

    def leave_out(self, what: str) -> None:
        """Note something that a rollout has no place for, in a few words."""
        self._left_out[what] += 1

    def system(self, text: str) -> None:
        """What a system prompt says; after the first answer it is a part of the observation."""
        self._append_text(text, self._system)

    def summary(self, fork: ForkBody) -> None:
        """A summary in the place of earlier steps: with the next answer a new context begins.

        What does not fit the steps so far is left out.
        """
        number = self.steps + 1
        fits = self._first_kept <= fork.first_kept_step <= number
        if not (fits and 1 <= fork.k < number):
            self.leave_out("summary of earlier steps")
            return
        self._first_kept = fork.first_kept_step
        self._fork = replace(fork, summary=self._disarm(redact(_clean(fork.summary))))

    def user(self, text: str, author: str = "user", id: str = "") -> None:
        """Add a person's message: the task; after the first answer guidance, or part of the
        observation if it is too long for that. id: the file's own."""
        long = len(text.encode("utf-8", "replace")) > GUIDANCE_TEXT_LIMIT
        if self._open is None or long or not text.strip():
            self._append_text(text, self._task)
            return
        name = _NAME_SPACE.sub(" ", author).strip()[:60] or "user"
        self._open.guidance.append(
            ImportedGuidance(author=redact(name), text=redact(_clean(text)), id=id)
        )

    def _append_text(self, text: str, before: list[str]) -> None:
        if text.strip():
            (before if self._open is None else self._open.text).append(_clean(text))

    def answer(self, sample: SampleBody, mask: str = "") -> None:
        """An answer of the model; it opens a step. mask: why it may not be trained."""
        self._close()
        number = len(self._steps) + 1
        # Some programs count their ids anew in every answer, and some ids are longer than OpenAI's.
        calls = [
            replace(
                call, id=f"{number}.{index}", name=_clean(call.name),
                arguments=redact_all(call.arguments), error=redact(_clean(call.error)),
            )
            for index, call in enumerate(sample.calls)
        ]  # fmt: skip
        begins = number == 1 or self._fork is not None
        named = replace(
            sample, policy=_clean(sample.policy or self.model), calls=tuple(calls),
            thought=redact(_clean(sample.thought)), parameters=redact_all(sample.parameters),
            drift="forked" if begins else sample.drift,
        )  # fmt: skip
        by_id: dict[str, ToolCall] = {}
        for original_call, call in zip(sample.calls, calls, strict=True):
            by_id.setdefault(original_call.id, call)
        before = self._steps[-1].active_us if self._steps else 0
        self._open = _OpenStep(named, mask, by_id, active_us=before, fork=self._fork)
        self._fork = None

    def result(
        self,
        call_id: str,
        text: str,
        *,
        success: bool = True,
        kind: str = "result",
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        """What a call of the newest answer returned; further text of the same call follows it.

        A call that the answer has not becomes plain text of the observation.
        """
        call = self._open.calls.get(call_id) if self._open else None
        if self._open is None or call is None:
            self.observe(text)
            return
        text, forged = disarm(redact(_clean(text)))
        self._note_disarmed(forged)
        earlier = self._open.results.get(call_id)
        if earlier is not None:
            text, forged = f"{earlier.text}\n{text}", forged + earlier.forged_tags
            success = success and earlier.success
        self._open.results[call_id] = ToolResult(
            call=call,
            kind=kind,
            success=success,
            text=text,
            fields=redact_all(dict(fields or {})),
            forged_tags=forged,
        )

    def observe(self, text: str) -> None:
        """What the agent was shown that answers no call."""
        self._append_text(text, self._task)

    def score(self, value: float | None, text: str, metrics: Mapping[str, Any]) -> None:
        """Add a score at the end of the newest step.

        value: from 0 to 1; any other value, or none, is kept in words and metrics only.
        """
        assert self._open is not None, "something was sampled before it is scored"
        fits = value is not None and math.isfinite(value) and 0 <= value <= 1
        if not fits:
            self.leave_out("score that is none from 0 to 1")
        points = round(value * SCORE_SCALE, 6) if value is not None and fits else None
        number = f"{len(self._steps) + 1}.{EVALUATION_CALL}{len(self._open.scores)}"
        self._open.scores.append(
            ToolResult(
                call=ToolCall(id=number, name=EVALUATION_CALL, arguments={}),
                kind="eval",
                success=True,
                text=self._disarm(redact(_clean(text))),
                fields={
                    "overall_score": points,
                    "state": "failed" if points is None else "scored",
                    "counted": points is not None,
                    "metrics": redact_all(dict(metrics)),
                },
            )
        )

    def scored_by_loop(self, result: ToolResult) -> None:
        """An evaluation of ours that answers no call, as it was."""
        if self._open is None:
            self.observe(result.text)
            return
        text, fields = self._disarm(redact(_clean(result.text))), redact_all(result.fields)
        self._open.scores.append(replace(result, text=text, fields=fields))

    def at(self, seconds: float) -> None:
        """When what came last had happened: unix time."""
        self._first_seconds = seconds if self._first_seconds is None else self._first_seconds
        if self._open is not None:
            passed = round(max(0.0, seconds - self._first_seconds) * 1e6)
            self._open.active_us = max(self._open.active_us, passed)

    def _close(self) -> None:
        """End the newest step, every call with a result."""
        if (step := self._open) is None:
            return
        missing = "" if step.text else NO_RESULT
        by_call = {result.call.id: result for result in step.results.values()}
        results = [
            by_call.get(call.id)
            or ToolResult(call=call, kind="missing", success=not call.error, text=missing)
            for call in step.sample.calls
        ]
        results += step.scores
        observation = ObservationBody(tail=self._disarm(redact("\n".join(step.text))))
        number = len(self._steps) + 1
        observed = observe_step(number, step.sample, results, observation)
        for result in results:
            self._scores.count_result(result, step.active_us / 1e6)
        budgets = dataclasses.replace(
            _UNLIMITED, evaluations=self._scores.evaluations, best=self._scores.best
        )
        signals = self._attention.step(observed, budgets, results)
        closed = replace(
            observation,
            attention=tuple(signals),
            reasons={name: redact(reason) for name, reason in signals.items()},
            attention_version=SIGNALS_VERSION,
        )
        self._steps.append(
            ImportedStep(
                sample=step.sample,
                results=tuple(results),
                observation=closed,
                guidance=tuple(step.guidance),
                active_us=step.active_us,
                mask=step.mask,
                fork=step.fork,
            )
        )
        self._open = None

    def _disarm(self, text: str) -> str:
        """Text that can forge no guidance; that something was disarmed is said."""
        safe_text, forged_count = disarm(text)
        self._note_disarmed(forged_count)
        return safe_text

    def _note_disarmed(self, forged_count: int) -> None:
        for _ in range(forged_count):
            self.leave_out("look-alike of a guidance tag")

    def _head_text(self, texts: list[str]) -> str:
        """System prompt or task. What Houston itself says of guidance is no look-alike of it."""
        parts = redact("\n\n".join(texts)).split(PERSON_RULE)
        return PERSON_RULE.join(map(self._disarm, parts))

    def _tool_schema(self, tool: dict[str, Any]) -> dict[str, Any]:
        """A tool in OpenAI's form with all that renderers read; empty for one without a name."""
        function = tool.get("function")
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            self.leave_out("tool without a name")
            return {}
        schema = function.get("parameters")
        parameters = schema if isinstance(schema, dict) else {"type": "object", "properties": {}}
        return {**tool, "function": {**function, "parameters": parameters}}

    def message(self, task: str, request: str, group: str = "") -> ImportRollout:
        """The message for the recorder; do not use this object afterwards.

        task: a name of any form. request: the idempotency key. Raises HoustonError if it is no
        rollout, or too large for one.
        """
        self._close()
        where = " ".join(filter(None, (self.source.file, self.source.id)))
        if not self._steps:
            raise HoustonError(f"{where} has no answer from a model.", NOTHING_IMPORTED)
        if len(self._steps) > MAX_IMPORTED_STEPS:
            raise HoustonError(
                f"{where} has {len(self._steps)} steps; at most {MAX_IMPORTED_STEPS} can be "
                "imported.",
                NOTHING_IMPORTED,
            )
        head = self._head()
        losses = [_with_count(what, count) for what, count in self._left_out.items()][
            :_MAX_OMISSIONS
        ]
        message = ImportRollout(
            request=request,
            spec=RolloutSpec(
                rollout="",
                task=_make_task_record(task, head.task, self.source.format),
                engine=ELSEWHERE,
                engine_settings={"kind": ELSEWHERE, "model": self._steps[-1].sample.policy},
                policy=self._steps[-1].sample.policy,
                group=group,
                elsewhere=replace(self.source, left_out=tuple(losses)),
            ),
            head=head,
            steps=tuple(self._steps),
            state=self.state,
            reason=redact(_clean(self.reason)),
        )
        size = len(encode_message(message))
        if size > FRAME_LIMIT:
            raise HoustonError(
                f"{where} has {size // 10**6} MB; at most {FRAME_LIMIT // 10**6} MB can be "
                "imported.",
                NOTHING_IMPORTED,
            )
        return message

    def _head(self) -> ContextHead:
        """The head of its context, which nobody rendered here."""
        tools = [schema for tool in self.tools if (schema := self._tool_schema(tool))]
        return ContextHead(
            system=self._head_text(self._system),
            task=self._head_text(self._task) or NO_INSTRUCTIONS,
            tools=tuple(redact_all(tools)),
            rendered="",
            token_ids=None,
            dialect="",
            tokenizer="",
        )


_UNLIMITED = RemainingBudgets(
    steps=10**6, steps_left=10**6, seconds=1e9, seconds_left=1e9, evaluations_left=10**6
)
"""No budget of ours ended what ran elsewhere; whether it is scored, its results say."""


def _make_task_record(name: str, instructions: str, format: str) -> TaskRecord:
    """The task as it is stored: what is known of it, in a file that can be read like any other."""
    task_name = make_task_name(name)
    tables: dict[str, dict[str, Any]] = {
        "": {
            "name": task_name,
            "instructions": f"Imported ({format}); each rollout has its own instructions.",
            "environment": "null",
        },
        "rules": {"off": ["null_action"]},  # other agents end, or answer, without a call
    }
    definition = tables_to_toml(tables)
    return TaskRecord(name=task_name, folder="", definition=definition, instructions=instructions)


def _clean(text: str) -> str:
    """Text as the store can hold it: half a character of UTF-16 becomes a mark."""
    return text.encode("utf-8", "replace").decode()


def _with_count(what: str, count: int) -> str:
    return what if count == 1 else f"{what} ({count} times)"
