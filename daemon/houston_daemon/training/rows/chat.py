"""The same rows as messages, each with its weight: for consumers that render by themselves.

Guidance stays inside the observation that it was joined to; under `strip` thoughts are left out.
A row ends with its last answer. Which dialect writes them is the consumer's business.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from houston_daemon.dialects.choose import choose_dialect
from houston_daemon.rollout import summary
from houston_daemon.rollout.context import Entry
from houston_daemon.rollout.rendering import Renderer, head_messages
from houston_daemon.training.rows.plan import Answer, RolloutPlan, weigh_summary
from houston_daemon.training.rows.row import ChatMessage, ChatRow, Kind, RowOptions
from houston_daemon.training.rows.standing import weight_of
from houston_daemon.training.rows.walk import Standing, Walked, summary_sample, walk
from houston_shared.records import Message, SampleBody, Thoughts
from houston_shared.store.messages import NOTHING
from houston_shared.store.queries.progress import Fork
from houston_shared.store.reader import Reader


def rows(
    reader: Reader, plan: RolloutPlan, options: RowOptions, thoughts: Thoughts
) -> Iterator[ChatRow]:
    """Chat rows of a rollout in its order: each context, then the summary that replaced it."""
    assert plan.head is not None
    renderer = Renderer(choose_dialect("chatml-json"), None, thoughts)  # its messages are neutral
    head = replace(plan.head, token_ids=None)
    for walked in walk(reader, plan, renderer, head, _without_ids):
        made = _Made(plan, options, renderer, walked)
        if walked.plan.own:
            yield made.context()
        if options.summaries and (fork := walked.plan.ended) and walked.plan.summary_seq:
            yield made.summary(fork, reader.run(summary_sample(walked.plan.summary_seq)))


def _without_ids(sample: SampleBody) -> SampleBody:
    return replace(sample, token_ids=None, new_prompt_ids=None, kept=0)


class _Made:
    """Chat rows of one context."""

    def __init__(
        self, plan: RolloutPlan, options: RowOptions, renderer: Renderer, walked: Walked
    ) -> None:
        self._plan = plan
        self._options = options
        self._renderer = renderer
        self._walked = walked

    def context(self) -> ChatRow:
        """The row of its actions."""
        walked, name = self._walked, self._plan.named(self._walked.plan.number)
        found = _told(head_messages(walked.head))
        for entry in walked.before:
            found += _told(entry.messages)
        answer = len(found)
        for one in walked.standing:
            answer = len(found)
            found += self._step(one, one.entry.messages, name)
        return self._row(name, "react", found[: answer + 1])

    def summary(self, fork: Fork, sample: SampleBody) -> ChatRow:
        """The row of the summary that the fork put in the place of its first k entries."""
        walked, name = self._walked, self._plan.named_summary(self._walked.plan.number + 1)
        entries, k = walked.context.entries, fork.k
        _, asked = self._renderer.asking(entries[k - 1], summary.REQUEST)
        by_step = {one.record.step: one for one in walked.standing}
        found = _told(head_messages(walked.head))
        for entry, said in [
            *((one, one.messages) for one in entries[: k - 1]),
            (entries[k - 1], asked),
        ]:
            found += self._entry(entry, said, by_step, name)
        weight = weigh_summary(Answer(sample.finish_reason, ""), self._options)
        written = Message(role="assistant", content=sample.thought.strip())
        found.append(ChatMessage(written, fork.step, weight.weight, weight.why))
        return self._row(name, "summary", found)

    def _entry(
        self, entry: Entry, said: Sequence[Message], by_step: dict[int, Standing], row: str
    ) -> list[ChatMessage]:
        return _told(said) if entry.summary else self._step(by_step[entry.step], said, row)

    def _step(self, one: Standing, said: Sequence[Message], row: str) -> list[ChatMessage]:
        answer, *observed = said
        empty = not answer.calls and answer.content == NOTHING
        weight = weight_of(one, self._plan, self._options, row, empty)
        number = one.record.step
        return [
            ChatMessage(answer, number, weight.weight, weight.why, weight.by),
            *(ChatMessage(message, number, 0.0, "") for message in observed),
        ]

    def _row(self, name: str, kind: Kind, found: Sequence[ChatMessage]) -> ChatRow:
        plan = self._plan
        return ChatRow(
            id=name,
            kind=kind,
            rollout=plan.rollout,
            task=plan.task,
            group=plan.group,
            domain=plan.domain,
            context=self._walked.plan.number,
            provenance=plan.provenance,
            messages=tuple(found),
            tools=self._walked.head.tools,
        )


def _told(said: Sequence[Message]) -> list[ChatMessage]:
    """Messages that nobody sampled."""
    return [ChatMessage(message, None, 0.0, "") for message in said]
