"""Rows as messages, each with its weight, for consumers that render and tokenise themselves.

Guidance stays inside the observation that it was joined to; under `strip`, thoughts are left out. A
row ends with its last answer. The consumer chooses the dialect.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from houston_daemon.prompts.model_dialects import choose_dialect
from houston_daemon.prompts.prompt_renderer import PromptRenderer, head_messages
from houston_daemon.training.rows.row_contexts import (
    ContextRows,
    ContextStep,
    answer_facts,
    walk_contexts,
)
from houston_daemon.training.rows.row_weights import RolloutPlan, weight_if_closed
from houston_daemon.training.rows.training_row import (
    ChatMessage,
    ChatRow,
    RowKind,
    RowOptions,
    check_role,
)
from houston_shared.context_messages import EMPTY_ANSWER
from houston_shared.records import Message, SampleBody, ThoughtHandling
from houston_shared.store.rollout_queries import ForkRow
from houston_shared.store.store_reader import Reader


def make_chat_rows(
    reader: Reader, plan: RolloutPlan, options: RowOptions, thoughts: ThoughtHandling
) -> Iterator[ChatRow]:
    """Chat rows of a rollout in its order: each context, then the summary that replaced it."""
    assert plan.head is not None
    renderer = PromptRenderer(
        choose_dialect("chatml-json"), None, thoughts
    )  # its messages are neutral
    head = replace(plan.head, token_ids=None)
    for walked in walk_contexts(reader, plan, renderer, head, _sample_without_ids):
        rows = _ChatContextRows(plan, options, renderer, walked)
        if walked.plan.own and plan.step_role in options.roles:
            yield rows.context()
        if summary := rows.trained_summary(reader):
            yield rows.summary(*summary)


def _sample_without_ids(sample: SampleBody) -> SampleBody:
    return replace(sample, token_ids=None, new_prompt_ids=None, kept=0)


class _ChatContextRows(ContextRows):
    """Chat rows of one context."""

    def context(self) -> ChatRow:
        """The row of its actions."""
        messages = _unsampled_messages(head_messages(self.walked.head))
        for entry in self.walked.fork_entries:
            messages += _unsampled_messages(entry.messages)
        last = len(messages)
        for step in self.walked.steps:
            last = len(messages)
            messages += self._step(step, step.entry.messages, self.name)
        return self._row(self.name, "react", messages[: last + 1])

    def summary(self, fork: ForkRow, sample: SampleBody) -> ChatRow:
        """The row of the summary that the fork put in the place of its first k entries."""
        name = self.summary_name
        check_role(sample.role, "summary", fork.step)
        messages = _unsampled_messages(head_messages(self.walked.head))
        for step, _, part in self.summary_request_parts(fork):
            messages += self._step(step, part, name) if step else _unsampled_messages(part)
        weight = weight_if_closed(
            self.summary_weight(sample, self.forged_reason(sample)), answer_facts(sample)
        )
        summary = Message(role="assistant", content=sample.thought.strip())
        messages.append(ChatMessage(summary, fork.step, weight.weight, weight.reason))
        return self._row(name, "summary", messages)

    def _step(self, step: ContextStep, messages: Sequence[Message], row: str) -> list[ChatMessage]:
        decided, *observed = messages
        empty = not decided.calls and decided.content == EMPTY_ANSWER
        weight = self.weight(step, row, empty)
        weight = weight_if_closed(weight, answer_facts(step.record.sample, step.stopped))
        number = step.record.step
        check_role(step.record.sample.role, self.plan.step_role, number)
        return [
            ChatMessage(decided, number, weight.weight, weight.reason, weight.source),
            *(ChatMessage(message, number, 0.0, "") for message in observed),
        ]

    def _row(self, name: str, kind: RowKind, messages: Sequence[ChatMessage]) -> ChatRow:
        plan = self.plan
        return ChatRow(
            id=name,
            kind=kind,
            rollout=plan.rollout,
            task=plan.task,
            group=plan.group,
            domain=plan.domain,
            context=self.walked.plan.number,
            provenance=plan.provenance,
            messages=tuple(messages),
            tools=self.walked.head.tools,
            step_role=plan.step_role,
        )


def _unsampled_messages(messages: Sequence[Message]) -> list[ChatMessage]:
    """Messages that nobody sampled."""
    return [ChatMessage(message, None, 0.0, "") for message in messages]
