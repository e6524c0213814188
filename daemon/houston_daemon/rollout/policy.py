"""What the policy is asked, and its answer as an action.

Knows the task's sampling parameters and the dialect; sends nothing itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from houston_daemon.dialects import calls as reading
from houston_daemon.dialects.protocol import Action, Dialect
from houston_daemon.engines.protocol import Sampled, SampleRequest
from houston_daemon.environments.protocol import ToolSpec
from houston_shared.records import Call, Message, SampleRole
from houston_shared.task import Sampling

INTERRUPTED = "interrupted by a person"


@dataclass(frozen=True, slots=True)
class Asking:
    """Everything that is the same in each request of a rollout."""

    sampling: Sampling
    policy: str
    policy_hash: str
    """Content of the policy, for the ledger."""
    tools: Sequence[Mapping[str, Any]]
    """In OpenAI's form, as stored with the head."""
    stops: tuple[int, ...]
    guided: bool
    """Whether grammars are sent: the task wants it and the engine takes ids."""
    reasoning: bool = field(default=False)
    rollout: str = ""
    answer_asked: bool = False
    """Whether the task file sets the limit of an answer."""

    def request(
        self,
        ids: tuple[int, ...] | None,
        messages: Sequence[Message],
        *,
        step: int,
        max_tokens: int,
        role: SampleRole = "policy",
        grammar: Mapping[str, Any] | None = None,
    ) -> SampleRequest:
        """One request. A summary is asked for without tools and without reasoning."""
        return SampleRequest(
            prompt_ids=ids,
            messages=messages,
            tools=self.tools if role == "policy" else (),
            max_tokens=max_tokens,
            max_tokens_asked=self.answer_asked and role == "policy",
            stop_token_ids=self.stops,
            grammar=grammar if self.guided else None,
            temperature=self.sampling.temperature,
            top_p=self.sampling.top_p,
            policy=self.policy,
            policy_hash=self.policy_hash,
            reasoning=self.reasoning and role == "policy",
            cache_salt=self.policy,
            role=role,
            step=step,
            rollout=self.rollout,
        )


def action(sampled: Sampled, step: int, dialect: Dialect, tools: Mapping[str, ToolSpec]) -> Action:
    """What was decided. Never raises: an answer that is no action says why."""
    text = whole(sampled.thought if sampled.thought is not None else sampled.text)
    if sampled.finish_reason == "interrupted":
        return Action(thought=whole(sampled.text) or text, calls=(), malformed=INTERRUPTED)
    if sampled.calls is None:
        read = dialect.parse(whole(sampled.text), step, tools)
        decided = Action(whole(read.thought), read.calls, read.malformed)
    else:
        decided = _native(sampled.calls, text, step, tools)
    if decided.malformed and sampled.finish_reason == "length":
        reason = f"it was cut at its limit of tokens ({decided.malformed})"
        return Action(thought=decided.thought, calls=(), malformed=reason)
    return decided


def whole(text: str) -> str:
    """`text` with U+FFFD for half characters, which no message can carry."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _native(
    calls: Sequence[Call], thought: str, step: int, tools: Mapping[str, ToolSpec]
) -> Action:
    """Calls in the engine's own form; names are checked as for any other."""
    try:
        made = [_named(call, step, index, tools) for index, call in enumerate(calls)]
        # White space around a thought is how its server cut the answer, and no word of it: most
        # dialects could not write it back (`training.rows.rendering`).
        return Action(thought=thought.strip(), calls=reading.limited(made))
    except reading.Unreadable as problem:
        return Action(thought=thought, calls=(), malformed=str(problem))


def _named(call: Call, step: int, index: int, tools: Mapping[str, ToolSpec]) -> Call:
    if call.error:
        return call
    made = reading.make(call.name, call.arguments, step, index, tools)
    return Call(id=call.id or made.id, name=made.name, arguments=made.arguments, error=made.error)
