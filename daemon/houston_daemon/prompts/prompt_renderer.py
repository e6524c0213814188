"""From records to context entries: what a step adds to the prompt, as messages and as token ids.

Within a rollout, only this module uses a dialect's rendering and the tokenizer. It works the same
when a step has just closed and when a resumed worker reads the step back. The context and the fork
decide what is kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.prompts.context_ledger import ContextEntry
from houston_daemon.prompts.dialect_protocol import (
    Dialect,
    PromptPiece,
    PromptToolResult,
    compact_json,
    tool_schemas,
)
from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer, TokenEstimator
from houston_shared import context_messages, guidance_tag
from houston_shared.context_messages import EARLIER_GUIDANCE, EMPTY_ANSWER
from houston_shared.records import (
    ContextHead,
    DeliveredGuidance,
    Message,
    ObservationBody,
    SampleBody,
    ThoughtHandling,
    ToolResult,
)

SHORT_TOOLS_SHARE = 8
"""Tools are rendered short when their schemas take more than window / this."""


class PromptRenderer:
    """Renders for one dialect; with a tokenizer also to ids."""

    def __init__(
        self,
        dialect: Dialect,
        tokens: PromptTokenizer | None,
        thoughts: ThoughtHandling,
        native_calls: bool = False,
    ) -> None:
        """native_calls: whether the engine takes and returns calls in its own form, so that the
        model has not been told that of the dialect."""
        self.dialect = dialect
        self.answer_hint = (
            "Call one of your tools." if native_calls else f"Answer in this form: {dialect.form}"
        )
        """What a model is told to do whose answer was no action."""
        self.tokens = tokens
        self.measure: PromptTokenizer | TokenEstimator = tokens or TokenEstimator()
        self._strip = thoughts == "strip"
        stop_ids = [(tokens.id_of(stop), stop) for stop in dialect.stop_tokens] if tokens else []
        self.stops = {number: stop for number, stop in stop_ids if number is not None}
        """Ids that end a turn, with their text."""

    def head(self, system: str, tools: Sequence[ToolSpec], task: str, short: bool) -> ContextHead:
        """The head, rendered only once for a rollout."""
        pieces = self.dialect.head(system, tools, task, short) if self.tokens else []
        return ContextHead(
            system=system,
            task=task,
            tools=tuple(tool.openai() for tool in tools),
            rendered="".join(piece.text for piece in pieces),
            token_ids=tuple(self.tokens.encode(pieces)) if self.tokens else None,
            dialect=self.dialect.name,
            tokenizer=self.tokens.path if self.tokens else "",
        )

    def shows_short(self, tools: Sequence[ToolSpec], window: int | None) -> bool:
        """Whether a head shows each tool in one line. window: tokens; None where it is unknown."""
        return window is not None and self.measure.count(tool_schemas(tools)) > (
            window // SHORT_TOOLS_SHARE
        )

    def head_size(self, head: ContextHead) -> int:
        """Tokens of a head; its tools are sent beside it where there are no ids."""
        if head.token_ids is not None:
            return len(head.token_ids)
        return self.estimate_tokens(head_messages(head)) + self.measure.count(
            compact_json(head.tools)
        )

    def render_step(
        self,
        step: int,
        sample: SampleBody,
        results: Sequence[ToolResult],
        observed: ObservationBody,
        guidance: Sequence[DeliveredGuidance],
    ) -> ContextEntry:
        """One closed step."""
        strip = self._strip and bool(sample.calls)
        shown_characters = context_messages.shown_guidance(observed, guidance)
        closing = context_messages.observation_ending(observed.tail, guidance, shown_characters)
        answer, stop = self._answer(sample, strip)
        ids = answer + self._encode(
            self.dialect.observation(_tool_result_texts(results), closing, stop)
        )
        message = _assistant_message(sample, strip)
        messages = (message, *_observation_messages(results, closing, message))
        return ContextEntry(
            step=step,
            messages=messages,
            ids=tuple(ids),
            size=len(ids) if self.tokens else self.estimate_tokens(messages),
            results=tuple(results),
            tail=observed.tail,
            guidance=tuple(guidance),
            stripped=strip,
            answer=len(answer),
            files=tuple(change.path for change in observed.files),
            shown_characters=shown_characters,
        )

    def fork_pair(
        self,
        entry: ContextEntry,
        summary: str,
        earlier: Sequence[DeliveredGuidance],
        shown_characters: Mapping[str, int] | None = None,
    ) -> ContextEntry:
        """(S₁:ₖ, oₖ): the summary in the place of the first k steps, with the last observation.

        entry: the entry of step k. earlier: guidance of the compressed part, without oₖ's own.
        shown_characters: how many characters are shown of guidance that does not fit whole.
        """
        text = context_messages.observation_text(
            entry.results, entry.tail, entry.guidance, shown_characters
        )
        if earlier:
            block = guidance_tag.render_guidance(earlier, shown_characters)
            text = f"{EARLIER_GUIDANCE}{block}\n{text}"
        pieces = [
            *self.dialect.assistant(summary, ()),
            *self.dialect.observation((), text),
        ]
        messages = (Message(role="assistant", content=summary), Message(role="user", content=text))
        ids = self._encode(pieces)
        return ContextEntry(
            step=entry.step,
            messages=messages,
            ids=tuple(ids),
            size=len(ids) if self.tokens else self.estimate_tokens(messages),
            results=entry.results,
            tail=entry.tail,
            guidance=entry.guidance,
            earlier_guidance=tuple(earlier),
            summary=True,
            files=entry.files,
        )

    def rerender(self, entry: ContextEntry) -> ContextEntry:
        """An entry of another renderer, rendered in this dialect from the same messages."""
        message = entry.messages[0]
        if entry.summary:
            text = message.content
            observation = self.dialect.observation((), entry.messages[-1].content)
        else:
            text = "" if message.content == EMPTY_ANSWER and not message.calls else message.content
            ending = context_messages.observation_ending(
                entry.tail, entry.guidance, entry.shown_characters
            )
            observation = self.dialect.observation(_tool_result_texts(entry.results), ending)
        answer = self._encode(self.dialect.assistant(text, message.calls))
        ids = (*answer, *self._encode(observation))
        size = len(ids) if self.tokens else self.estimate_tokens(entry.messages)
        return replace(entry, ids=ids, size=size, answer=len(answer))

    def asking(self, entry: ContextEntry, request: str) -> tuple[list[int], tuple[Message, ...]]:
        """`entry` with `request` at the end of its observation: the prompt for a summary.

        The entry's answer stays as it is in the context, so the prompt keeps its prefix.
        """
        if entry.summary:
            text = f"{entry.messages[-1].content}\n{request}"
            summary = entry.messages[0]
            pieces = [
                *self.dialect.assistant(summary.content, ()),
                *self.dialect.observation((), text),
            ]
            return self._encode(pieces), (summary, Message(role="user", content=text))
        ending = context_messages.observation_ending(
            entry.tail, entry.guidance, entry.shown_characters
        )
        closing = f"{ending}\n{request}"
        answer = list(entry.ids[: entry.answer])
        stop = self.stops.get(answer[-1], "") if answer else ""
        delta = self.dialect.observation(_tool_result_texts(entry.results), closing, stop)
        messages = (
            entry.messages[0],
            *_observation_messages(entry.results, closing, entry.messages[0]),
        )
        return answer + self._encode(delta), messages

    def estimate_tokens(self, messages: Sequence[Message]) -> int:
        """About how many tokens `messages` have, without a tokenizer."""
        text = "".join(f"{message.content}{_calls_text(message)}" for message in messages)
        return self.measure.count(text) + 4 * len(messages)

    def _answer(self, sample: SampleBody, strip: bool) -> tuple[list[int], str | None]:
        """Ids of the answer as it stands in the context, and the stop token that ended it."""
        if self.tokens is None:
            return [], None
        if strip:
            return self._encode(self.dialect.assistant("", sample.calls)), None
        if sample.token_ids is None:  # the engine lost the ids: rendered, class `realigned`
            return self._encode(self.dialect.assistant(sample.thought, sample.calls)), None
        ids = list(sample.token_ids)
        return ids, self.stops.get(ids[-1], "") if ids else ""

    def _encode(self, pieces: Sequence[PromptPiece]) -> list[int]:
        return self.tokens.encode(pieces) if self.tokens else []


def head_messages(head: ContextHead) -> tuple[Message, ...]:
    """The head as messages."""
    return (
        Message(role="system", content=head.system),
        Message(role="user", content=head.task),
    )


def _assistant_message(sample: SampleBody, strip: bool) -> Message:
    thought = "" if strip else sample.thought
    if not thought and not sample.calls:
        thought = EMPTY_ANSWER
    return Message(role="assistant", content=thought, calls=sample.calls)


def _tool_result_texts(results: Sequence[ToolResult]) -> list[PromptToolResult]:
    labels = context_messages.label_results(results)
    return [
        PromptToolResult(call_id=result.call.id, name=result.call.name, text=text)
        for result, text in zip(results, labels, strict=True)
    ]


def _observation_messages(
    results: Sequence[ToolResult], closing: str, answer: Message
) -> tuple[Message, ...]:
    """One message a call of `said`, all else joined to the last; a user's without calls.

    A result that answers no call (a last evaluation by the loop) has no message of its own.
    """
    call_ids = {call.id for call in answer.calls}
    labelled = list(zip(results, context_messages.label_results(results), strict=True))
    answers = [(result.call.id, text) for result, text in labelled if result.call.id in call_ids]
    rest = [text for result, text in labelled if result.call.id not in call_ids]
    end = "\n".join(part for part in (*rest, closing) if part)
    if not answers:
        return (Message(role="user", content=end),)
    number, text = answers[-1]
    answers[-1] = (number, "\n".join(part for part in (text, end) if part))
    return tuple(Message(role="tool", content=text, call_id=number) for number, text in answers)


def _calls_text(message: Message) -> str:
    return "".join(f"{call.name}{call.arguments}" for call in message.calls)
