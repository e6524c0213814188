"""Sampling the policy: the request, one patient try after another, and the answer as an action.

Builds requests from the task's sampling parameters, cuts a sample on interrupt, waits (without
active time) for an engine that is away, pauses while an engine refuses, and makes the ledger entry
of a sample. It does not decide what is in the prompt.
"""

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from houston_daemon.agent.recorder_client import RecorderClient
from houston_daemon.agent.rollout_budgets import SpentCost
from houston_daemon.agent.worker_control import raise_if_exiting, should_stop_sample
from houston_daemon.engines.engine_protocol import (
    ContextOverflow,
    Engine,
    EngineRefused,
    EngineSample,
    EngineUnavailable,
    SampleRequest,
)
from houston_daemon.engines.logprob_kind import true_logprob_kind
from houston_daemon.engines.replicated_engine import take_replicas
from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.prompts import dialect_protocol as reading
from houston_daemon.prompts.context_ledger import PromptLink
from houston_daemon.prompts.dialect_protocol import AgentAction, Dialect, compact_json
from houston_daemon.prompts.planner_dialect import PlannerDialect
from houston_daemon.prompts.prompt_tokenizer import TokenEstimator
from houston_shared.engine_settings import EnginePrice
from houston_shared.errors import HoustonError
from houston_shared.records import AWAY_ACTIVITY, AWAY_MARK, Message, SampleBody, ToolCall
from houston_shared.sample_roles import SAMPLE_ROLES, STEP_ROLES, SampleRole
from houston_shared.task import SamplingSettings
from houston_shared.wire import StoreState, encode_message

INTERRUPTED_ANSWER = "interrupted by a person"


@dataclass(frozen=True, slots=True)
class SampleRequestBuilder:
    """Everything that is the same in each request of a rollout."""

    sampling: SamplingSettings
    policy: str
    policy_hash: str
    """Content of the policy, for the ledger."""
    tools: Sequence[Mapping[str, Any]]
    """In OpenAI's form, as stored with the head."""
    stop_token_ids: tuple[int, ...]
    guided: bool
    """Whether grammars are sent: the task wants it and the engine takes ids."""
    reasoning: bool = field(default=False)
    rollout: str = ""
    is_max_tokens_set: bool = False
    """Whether the task file sets the limit of an answer."""
    role: SampleRole = "policy"
    """Who is asked, and whose limit that is."""

    def request(
        self,
        ids: tuple[int, ...] | None,
        messages: Sequence[Message],
        *,
        step: int,
        max_tokens: int,
        role: SampleRole = "policy",
        grammar: Mapping[str, Any] | None = None,
        attempt: int = 1,
    ) -> SampleRequest:
        """One request. A summary is asked for without tools and without reasoning."""
        acts = SAMPLE_ROLES[role].acts
        return SampleRequest(
            prompt_ids=ids,
            messages=messages,
            tools=self.tools if acts else (),
            max_tokens=max_tokens,
            is_max_tokens_set=self.is_max_tokens_set and (acts or role == self.role),
            stop_token_ids=self.stop_token_ids,
            grammar=grammar if self.guided else None,
            temperature=self.sampling.temperature,
            top_p=self.sampling.top_p,
            policy=self.policy,
            policy_hash=self.policy_hash,
            reasoning=self.reasoning and acts,
            cache_salt=self.policy,
            role=role,
            step=step,
            attempt=attempt,
            rollout=self.rollout,
        )


def parse_action(
    sampled: EngineSample, step: int, dialect: Dialect, tools: Mapping[str, ToolSpec]
) -> AgentAction:
    """The action in an answer. Never raises: an answer that is not an action says why."""
    text = replace_surrogates(sampled.thought if sampled.thought is not None else sampled.text)
    if sampled.finish_reason == "interrupted":
        return AgentAction(
            thought=replace_surrogates(sampled.text) or text, calls=(), malformed=INTERRUPTED_ANSWER
        )
    # A chat endpoint may have written a planner's object instead of calling a tool.
    is_text = not sampled.calls and isinstance(dialect, PlannerDialect)
    if sampled.calls is None or is_text:
        read = dialect.parse(replace_surrogates(sampled.text), step, tools)
        decided = AgentAction(replace_surrogates(read.thought), read.calls, read.malformed)
    else:
        decided = _action_from_calls(sampled.calls, text, step, tools)
    if decided.malformed and sampled.finish_reason == "length":
        reason = f"it was cut at its limit of tokens ({decided.malformed})"
        return AgentAction(thought=decided.thought, calls=(), malformed=reason)
    return decided


def replace_surrogates(text: str) -> str:
    """`text` with U+FFFD for half characters, which no message can carry."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _action_from_calls(
    calls: Sequence[ToolCall], thought: str, step: int, tools: Mapping[str, ToolSpec]
) -> AgentAction:
    """Calls in the engine's own form; names are checked as for any other."""
    try:
        checked = [_checked_call(call, step, index, tools) for index, call in enumerate(calls)]
        # White space around a thought is how its server cut the answer, and no word of it: most
        # dialects could not write it back (`training.rows`).
        return AgentAction(thought=thought.strip(), calls=reading.require_call_count(checked))
    except reading.UnreadableAnswer as problem:
        return AgentAction(thought=thought, calls=(), malformed=str(problem))


def _checked_call(call: ToolCall, step: int, index: int, tools: Mapping[str, ToolSpec]) -> ToolCall:
    if call.error:
        return call
    built = reading.build_call(call.name, call.arguments, step, index, tools)
    return ToolCall(
        id=call.id or built.id, name=built.name, arguments=built.arguments, error=built.error
    )


log = logging.getLogger(__name__)
ENGINE_AWAY_WAITS = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds between tries while the engine is away; the last one repeats."""
ENGINE_REFUSED_WAITS = (30.0, 60.0, 120.0, 300.0)
"""Seconds between tries of what the engine refuses; the last one repeats."""
_KEY_HINT = (
    "A key is read where the daemon was started: export NAME=… there, and houston daemon restart."
)


class EngineRefusalPause:
    """A pause by `engine`: it refuses until a person corrects a key, an account or a model.

    The same request is sent again automatically, at least every five minutes, and at once when a
    person resumes the rollout; the first success ends the pause.
    """

    def __init__(self, line: RecorderClient, engine: str, is_role_engine: bool = False) -> None:
        """is_role_engine: whether it is a role's own engine, not that of the rollout."""
        self._line, self._engine, self._is_role_engine = line, engine, is_role_engine
        self._tries = 0

    def activity(self, problem: HoustonError) -> str:
        """The activity of a worker that waits for the engine; it names an engine that is a role's
        own."""
        name = f" {self._engine}" if self._is_role_engine else ""
        return f"{AWAY_ACTIVITY}{name}{AWAY_MARK}{problem.cause}"

    async def pause_and_wait(self, problem: EngineRefused | EngineUnavailable) -> None:
        """Pause, and wait until the next try. Raises WorkerExit."""
        log.warning("the engine refuses: %s", problem)
        if isinstance(problem, EngineRefused):
            await self._line.store(
                StoreState, state="paused", by="engine", reason=self._pause_reason(problem)
            )
        waits = ENGINE_REFUSED_WAITS[min(self._tries, len(ENGINE_REFUSED_WAITS) - 1)]
        self._tries += 1
        await self._line.wait_while_paused(asyncio.sleep(waits), self.activity(problem))

    def __bool__(self) -> bool:
        """Whether anything was refused since `end_pause`."""
        return self._tries > 0

    async def end_pause(self) -> None:
        """The engine accepts again: end the pause, if it is its own. Raises WorkerExit."""
        if not self._tries:
            return
        self._tries = 0
        reason = f"the engine {self._engine} accepts requests again"
        await self._line.store(StoreState, state="running", by="engine", reason=reason)
        await self._line.wait_at_safe_point()  # a person may have paused it meanwhile

    def _pause_reason(self, problem: EngineRefused) -> str:
        key = _KEY_HINT if problem.status in (401, 403) else ""
        again = f"houston rollout resume {self._line.rollout}"
        asks = f"Houston asks again every few minutes, and at once after {again}."
        cause = problem.cause.replace("The engine", f"Engine {self._engine}", 1)
        parts = (cause, problem.next, key, asks)
        return " ".join(part for part in parts if part)


class CountedTokens(NamedTuple):
    """What one request took."""

    prompt: int
    cached: int
    sampled: int
    reckoned: bool
    """Whether some of it is reckoned from bytes: the endpoint does not say it."""


def count_tokens(request: SampleRequest, sampled: EngineSample) -> CountedTokens:
    """Tokens of prompt and answer: the number of ids where there are any, otherwise the endpoint's
    count, otherwise an estimate from bytes."""
    usage, texts = sampled.usage, TokenEstimator()
    prompt, answer = usage.prompt_tokens, usage.completion_tokens
    if request.prompt_ids is not None:
        prompt = len(request.prompt_ids)
    if sampled.token_ids is not None:
        answer = len(sampled.token_ids)
    reckoned = prompt is None or answer is None
    if prompt is None:
        sent = [message.content for message in request.messages]
        sent += [compact_json(call.arguments) for each in request.messages for call in each.calls]
        prompt = sum(map(texts.count, (*sent, *map(compact_json, request.tools))))
    if answer is None:
        calls = "".join(compact_json(call.arguments) for call in sampled.calls or ())
        answer = texts.count(f"{sampled.text}{sampled.reasoning}{calls}")
    return CountedTokens(prompt, usage.cached_tokens or 0, answer, reckoned)


def with_cost(request: SampleRequest, sampled: EngineSample, price: EnginePrice) -> EngineSample:
    """The sample with what it cost by its engine's price."""
    counted = count_tokens(request, sampled)
    cost = price.cost(counted.prompt, counted.cached, counted.sampled)
    return replace(sampled, usage=replace(sampled.usage, cost=cost))


class PolicySampler:
    """Samples from one engine for one rollout, and adds up the cost."""

    def __init__(
        self,
        engine: Engine,
        line: RecorderClient,
        is_role_engine: bool = False,
        *,
        price: EnginePrice | None = None,
        spent: SpentCost | None = None,
    ) -> None:
        """price: None where none is declared. spent: the rollout's, over all of its engines."""
        self.engine = engine
        self.line = line
        self.price = price
        self.spent = spent or SpentCost()
        self._refusals = EngineRefusalPause(line, engine.name, is_role_engine)

    async def sample(self, request: SampleRequest, interruptible: bool = True) -> EngineSample:
        """Sample once; while the engine is away, wait without spending active time; while it
        refuses, wait paused.

        Raises WorkerExit, ContextOverflow, and HoustonError when the engine saw another prompt.
        """
        for tries in range(1_000_000):
            self.line.activity = "sampling" if request.role in STEP_ROLES else request.role
            try:
                sampled = require_sent_prompt(
                    request, await self._sample_once(request, interruptible)
                )
                await self._refusals.end_pause()
                return self._add_cost(request, sampled)
            except ContextOverflow:
                await self._refusals.end_pause()
                raise
            except EngineRefused as problem:
                await self._refusals.pause_and_wait(problem)
            except EngineUnavailable as problem:
                await self._wait_while_away(problem, tries)
        raise HoustonError("The engine never came back.")

    def _add_cost(self, request: SampleRequest, sampled: EngineSample) -> EngineSample:
        if self.price is None:
            return sampled
        sampled = with_cost(request, sampled, self.price)
        self.spent.total += sampled.usage.cost or 0.0
        return sampled

    async def wait_for_longer_window(self, problem: ContextOverflow) -> None:
        """Wait, paused, for an engine that takes longer prompts. Raises WorkerExit."""
        await self._refusals.pause_and_wait(problem)

    async def _sample_once(self, request: SampleRequest, interruptible: bool) -> EngineSample:
        stop = asyncio.Event()
        control = self.line.control
        request = replace(request, waiting=self.line.clock.excluded)
        task = asyncio.create_task(self.engine.sample(request, stop))
        try:
            while not task.done():
                take_replicas(self.engine, control.current)
                raise_if_exiting(control.current)
                if interruptible and should_stop_sample(control.current):
                    stop.set()
                await control.wait({task}, None)
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=2.0)

    async def _wait_while_away(self, problem: EngineUnavailable, tries: int) -> None:
        """Wait before the next try; a change of control cuts it, so that leaving is quick."""
        # Its own pause is no reason to stand still until somebody ends it.
        if self._refusals and self.line.control.current.pause:
            return await self._refusals.pause_and_wait(problem)
        log.warning("the engine is away: %s", problem)
        self.line.activity = self._refusals.activity(problem)
        seconds = ENGINE_AWAY_WAITS[min(tries, len(ENGINE_AWAY_WAITS) - 1)]
        with self.line.clock.excluded():
            await self.line.control.wait((), seconds)
            await self.line.wait_at_safe_point()


def require_sent_prompt(request: SampleRequest, sampled: EngineSample) -> EngineSample:
    """The sample. Raises HoustonError where its prompt was not the one that was sent."""
    seen, sent = sampled.prompt_ids, request.prompt_ids
    if seen is None or sent is None or tuple(seen) == tuple(sent):
        return sampled
    raise HoustonError(
        f"The engine received a prompt of {len(seen)} tokens, not the one of {len(sent)} tokens "
        "that was sent.",
        "Its answer was not used.",
    )


def build_ledger_entry(
    request: SampleRequest,
    sampled: EngineSample,
    link: PromptLink,
    engine: str,
    *,
    thought: str,
    calls: tuple[ToolCall, ...] = (),
    malformed: str = "",
    tokenizer: str = "",
) -> SampleBody:
    """What the ledger keeps of one request."""
    prompt, usage = request.prompt_ids, sampled.usage
    parameters = _sampling_parameters(request, sampled.parameters)
    return SampleBody(
        role=request.role,
        parent_seq=link.parent_seq,
        kept=link.kept,
        new_prompt_ids=link.new_ids,
        token_ids=None if sampled.token_ids is None else tuple(sampled.token_ids),
        logprobs=None if sampled.logprobs is None else tuple(sampled.logprobs),
        logprob_kind=true_logprob_kind(sampled.logprob_kind, parameters),
        finish_reason=sampled.finish_reason,
        policy=request.policy,
        policy_hash=request.policy_hash,
        engine=engine,
        parameters=parameters,
        drift=link.drift,
        thought=thought,
        calls=calls,
        malformed=malformed,
        prompt_tokens=usage.prompt_tokens if prompt is None else len(prompt),
        cached_tokens=usage.cached_tokens,
        completion_tokens=usage.completion_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cost=usage.cost,
        seconds=round(sampled.seconds, 6),
        tokenizer=tokenizer,
    )


def _sampling_parameters(request: SampleRequest, sent: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling parameters as sent; a grammar by its hash."""
    fields = {"temperature": request.temperature, "top_p": request.top_p}
    parameters = dict(sent) or {name: value for name, value in fields.items() if value is not None}
    if request.grammar is not None:
        parameters["grammar"] = hashlib.sha256(encode_message(request.grammar)).hexdigest()[:16]
    return parameters
