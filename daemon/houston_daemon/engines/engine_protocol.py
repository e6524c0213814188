"""What the agent loop asks of an engine, and what it gets back.

An engine turns a prompt into sampled tokens. It knows nothing of steps, tools or guidance.
Implementations: `token_engine` (vLLM's /v1/completions with ids, also served by the embedded
server), `chat_engine` (any OpenAI-compatible endpoint), `script_engine` (plays a file). Chosen in
`engine_registry`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from houston_shared.errors import HoustonError
from houston_shared.records import LogprobKind, Message, ToolCall
from houston_shared.sample_roles import SampleRole

DEFAULT_TEMPERATURE = 0.7
"""Of a token engine, where the task file sets none."""
FinishReason = Literal["stop", "length", "interrupted"]


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """One request to a model."""

    prompt_ids: Sequence[int] | None
    """The whole prompt as token ids; None for engines without token ids (chat, script)."""
    messages: Sequence[Message]
    """The same prompt as messages: what a chat engine sends."""
    tools: Sequence[Mapping[str, Any]]
    """JSON schemas of the tools in OpenAI's form; a chat engine sends them, others ignore them."""
    max_tokens: int
    """Upper bound of sampled tokens."""
    is_max_tokens_set: bool = False
    """Whether the task file sets it: a chat endpoint is sent no limit that nobody asked for."""
    stop_token_ids: Sequence[int] = ()
    """Ids that end the turn; the one that ended it is part of what was sampled."""
    grammar: Mapping[str, Any] | None = None
    """JSON schema that the sampled text must follow, or None for free text."""
    temperature: float | None = None
    """None where nobody set it: a token engine then samples at `DEFAULT_TEMPERATURE`, and a chat
    endpoint is sent none."""
    top_p: float | None = None
    """None where nobody set it: as above, with 1."""
    policy: str = ""
    """Name of the policy version (`policy@7`); empty for the base model."""
    policy_hash: str = ""
    """Content of that policy, for the ledger; no engine is told it."""
    reasoning: bool = False
    """Whether the model may write reasoning tokens before its answer."""
    cache_salt: str = ""
    """Separates prefix caches, one per policy version; empty for none."""
    role: SampleRole = "policy"
    """What the sample is for; the script engine answers a `summary` by itself."""
    step: int = 0
    """Number of the step that the sample decides, from 1: the line that the script engine plays,
    so that a resumed rollout goes on at the right one."""
    attempt: int = 1
    """Which attempt at the step, for a `lookahead`: the correction that the script engine plays."""
    rollout: str = ""
    """Id of the rollout that asks; empty for others. A chat endpoint is told it in a header."""
    waiting: Callable[[], AbstractContextManager[None]] = field(default=nullcontext, compare=False)
    """Entered while an engine waits before it tries again: no active time of the rollout."""


@dataclass(frozen=True, slots=True)
class EngineUsage:
    """The usage of a request as the engine counts it; None where it gives no count."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    """Of the prompt, what came from the prefix cache."""
    completion_tokens: int | None = None
    """Sampled, those of reasoning included."""
    reasoning_tokens: int | None = None
    cost: float | None = None
    """By the engine's price; the sampler reckons it, no engine."""

    @classmethod
    def read(cls, usage: Mapping[str, Any]) -> "EngineUsage":
        """The `usage` of an OpenAI-compatible answer. A count that is no number is none."""
        prompt = _as_mapping(usage.get("prompt_tokens_details"))
        sampled = _as_mapping(usage.get("completion_tokens_details"))
        # DeepSeek counts hits of its cache beside the others.
        cached = prompt.get("cached_tokens", usage.get("prompt_cache_hit_tokens"))
        return cls(
            _as_count(usage.get("prompt_tokens")),
            _as_count(cached),
            _as_count(usage.get("completion_tokens")),
            _as_count(sampled.get("reasoning_tokens")),
        )


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _as_count(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 2**53 else None


@dataclass(frozen=True, slots=True)
class EngineSample:
    """What a model sampled for one request."""

    text: str
    """The sampled text, decoded by the engine; without the stop token."""
    finish_reason: FinishReason
    token_ids: Sequence[int] | None = None
    """Sampled ids, the stop token included when there was one; None without token ids."""
    logprobs: Sequence[float] | None = None
    """Natural-log probability of each of `token_ids`; same length."""
    logprob_kind: LogprobKind = "none"
    """What `logprobs` are of; the ledger holds it against how the tokens were drawn."""
    prompt_ids: Sequence[int] | None = None
    """The prompt as the engine says it saw it, where it says so (checked against the request)."""
    calls: Sequence[ToolCall] | None = None
    """Calls in the engine's own form (chat, script); None where the dialect parses the text."""
    thought: str | None = None
    """Thought in the engine's own form (chat, script); None where the dialect parses the text."""
    reasoning: str = ""
    """Reasoning that a chat engine returned apart from its answer; never part of a context."""
    usage: EngineUsage = field(default_factory=EngineUsage)
    seconds: float = 0.0
    """Wall time of the request."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Sampling parameters as sent, for the ledger."""


class EngineUnavailable(HoustonError):
    """The engine cannot be reached or is starting; the same request may be sent again later."""

    after: float | None = None
    """Seconds that it asked to wait; None where it did not say."""


class EngineRefused(HoustonError):
    """The engine answers and refuses: a key, an account, a model or a parameter is wrong.

    status: the HTTP status, if there is one. Sending it again helps once a person has corrected
    that.
    """

    def __init__(self, cause: str, effect: str = "", next: str = "", status: int = 0) -> None:
        super().__init__(cause, effect, next)
        self.status = status


class ContextOverflow(EngineRefused):
    """The prompt is longer than the engine accepts; a shorter one may be accepted."""


class Engine(Protocol):
    """Turns prompts into samples. One instance may serve several rollouts of one event loop."""

    name: str
    """As written into the ledger, e.g. `embedded`, `vllm`, `chat:gpt-x`, `script`."""
    token_ids: bool
    """Whether it takes and returns token ids."""
    window: int | None
    """Largest prompt + answer in tokens; None when unknown (script)."""

    async def sample(self, request: SampleRequest, stop: asyncio.Event) -> EngineSample:
        """Sample once.

        stop: set by the loop to cut the sample short; what was sampled so far is then returned
        with `finish_reason="interrupted"`, and the request is aborted at the engine.
        Raises EngineUnavailable after bounded retries of connection loss, 429 and 5xx;
        EngineRefused for any other refusal.
        """
        ...

    async def ready(self) -> None:
        """Return when the engine answers; raise EngineUnavailable with its reason if not."""
        ...

    async def close(self) -> None:
        """Release connections. Never ends a server that this object did not start."""
        ...
