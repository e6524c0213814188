"""`houston engine check`: everything that a rollout will ask of an engine, asked once.

Free checks come first (settings, then `engine_probes`), then four short samples: a tool call, and
three that show what the log-probabilities are of. There is one finding for each of `CHECK_ORDER`; a
check that does not apply is skipped with its reason. Nothing is stored, loaded or started.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from houston_daemon.agent.sample_requests import parse_action
from houston_daemon.engines.engine_protocol import (
    ContextOverflow,
    Engine,
    EngineRefused,
    EngineSample,
    SampleRequest,
)
from houston_daemon.engines.engine_registry import choose_engine
from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.prompts.dialect_protocol import AgentAction, Dialect
from houston_daemon.prompts.prompt_renderer import PromptRenderer, head_messages
from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer
from houston_daemon.service import engine_probes
from houston_daemon.service.check_findings import CheckFinding, ok_finding
from houston_daemon.service.engine_child import recorded_process
from houston_daemon.service.engine_probes import ROUND_TRIP_TOOL, ServerAddress
from houston_daemon.service.engine_replicas import replica_names
from houston_daemon.service.rollout_start_checks import check_engine_settings
from houston_shared.backoff import RetryPolicy
from houston_shared.config import FILE_ENGINES, LoadedConfiguration
from houston_shared.engine_settings import EnginePrice, EngineSettings, server_name
from houston_shared.errors import HoustonError

CHECK_ORDER = (
    "settings", "reachable", "replicas", "key", "model", "tokenizer", "dialect", "tool call",
    "log-probabilities", "adapters", "window", "usage", "price",
)  # fmt: skip
_CHAT_REASONS = {
    "tokenizer": "a chat endpoint is sent text",
    "dialect": "a chat endpoint writes prompts and calls in its own form",
    "adapters": "a chat endpoint serves what its owner has loaded",
}
_SYSTEM = "You act by calling tools. Each of your answers is one call."
_TASK = "Write the word ready into the log: call the tool note."
_ANSWER_TOKENS = 256
_PROBED_TOKENS = 8
"""Sampled for the log-probabilities; at a temperature of 1 and near 0, from the same prompt."""
_COLD = 0.05
"""A temperature at which the likeliest token has nearly all of the probability."""
_SURE_NATS = 0.1
"""A log-probability above -0.1 tells nothing: it is near 0 at any temperature."""
_SHOWN = 120


@dataclass(slots=True)
class _Samples:
    """What was sampled so far, for usage and price."""

    answers: list[EngineSample] = field(default_factory=list)
    prompts: list[int | None] = field(default_factory=list)
    """Tokens of each prompt as they were sent; None without ids."""


async def check_engine(
    loaded: LoadedConfiguration, name: str, seconds: float
) -> list[CheckFinding]:
    """One finding for each name of `CHECK_ORDER`, in that order. seconds: how long a sample may
    take. Raises ConfigurationError for a name that is none."""
    engine = loaded.engine(name)
    findings: dict[str, CheckFinding] = {}
    async for finding in _check(loaded, name, engine, seconds):
        findings[finding.name] = engine_probes.without_secrets(
            finding
        )  # what a sample told counts for more than what was said
    failed = next((each.name for each in findings.values() if each.state == "fail"), "")
    skipped = _CHAT_REASONS if engine.kind == "chat" else {}
    unasked = f"not asked, for the line `{failed}`" if failed else "not asked"
    return [
        findings.get(each) or CheckFinding(each, "skip", skipped.get(each, unasked))
        for each in CHECK_ORDER
    ]


async def _check(
    loaded: LoadedConfiguration, name: str, engine: EngineSettings, seconds: float
) -> AsyncIterator[CheckFinding]:
    try:
        check_engine_settings(loaded, name, engine)
    except HoustonError as problem:
        yield CheckFinding("settings", "fail", problem.cause, problem.next)
        return
    yield ok_finding("settings", f"kind {engine.kind}, of {loaded.source}")
    settings: dict[str, Any] = msgspec.to_builtins(engine)
    yield _price_finding(loaded, settings, _Samples())
    if engine.kind in FILE_ENGINES:
        yield CheckFinding("reachable", "skip", f"it plays {engine.path} and asks nobody")
        return
    servers = _server_urls(loaded, name, engine)
    if engine.is_daemon_child and not any(servers.values()):
        step = f"houston rollout start TASK.toml --engine {name}"
        text = "it does not run: the daemon starts it with its first rollout"
        yield CheckFinding("reachable", "skip", text, step)
        return
    server_url, finding = await engine_probes.compare_replicas(name, settings, servers)
    yield finding
    settings |= {"url": server_url, "urls": ()}
    if not (engine.api_key_env or engine.headers_env):
        yield CheckFinding("key", "skip", "none is configured")
    if engine_probes.is_probed(settings):
        probed = await engine_probes.probe_engine(name, settings)
        for finding in probed:
            yield finding
        if any(finding.state == "fail" for finding in probed):
            return
    samples = _Samples()
    async for finding in _check_samples(ServerAddress(name, settings), seconds, samples):
        yield finding
    yield _price_finding(loaded, settings, samples)


async def _check_samples(
    server: ServerAddress, seconds: float, samples: _Samples
) -> AsyncIterator[CheckFinding]:
    try:
        async with _opened(server, seconds) as engine:
            sampler = _TrialSampler(server, engine, seconds, samples)
            if server.settings.get("tool_calls") == "text":
                dialect, tokens = engine_probes.load_dialect(server.settings, token_ids=False)
                yield engine_probes.dialect_finding(server, dialect, tokens)
            yield await sampler.tool_call()
            if server.model:
                yield ok_finding("model", f"{server.model} answers")
            yield await sampler.logprobs()
            yield _usage_finding(server, samples)
    except HoustonError as problem:
        yield _refusal_finding(server, problem)


def _server_urls(loaded: LoadedConfiguration, name: str, engine: EngineSettings) -> dict[str, str]:
    """Where each of an engine's servers answers, by its name; empty for a child that does not
    run."""
    if engine.urls:
        return {server_name(url): url for url in engine.urls}
    if not engine.is_daemon_child:
        return {name: engine.url}
    children = {each: recorded_process(loaded.home, each) for each in replica_names(name, engine)}
    return {each: child.url if child.adopt() else "" for each, child in children.items()}


@asynccontextmanager
async def _opened(server: ServerAddress, seconds: float) -> AsyncIterator[Engine]:
    """The engine, ready. Raises HoustonError."""
    engine = choose_engine(server.settings, None, server.name, RetryPolicy(attempts=2))
    try:
        async with asyncio.timeout(seconds):
            await engine.ready()
        yield engine
    except TimeoutError:
        raise HoustonError(
            f"It did not answer within {seconds:g} s.",
            next=f"houston engine check {server.name} --seconds {4 * seconds:g}",
        ) from None
    finally:
        await engine.close()


def _refusal_finding(server: ServerAddress, problem: HoustonError) -> CheckFinding:
    """What a sample was refused with, on the line of what is to be mended."""
    status = problem.status if isinstance(problem, EngineRefused) else 0
    name, step = "tool call", "houston daemon status"
    if status == 404:
        name, step = "model", f"Correct {server.key('model')}, or {server.key('url')}."
    elif status in (401, 402, 403, 429):
        name, step = "key", "Mend the key or the account at the provider."
    elif "log-probabilities" in problem.cause:
        name = "log-probabilities"
    elif isinstance(problem, ContextOverflow):
        name, step = "window", "Serve the model with a longer window."
    elif status in (400, 422) and "tool" in problem.cause.casefold() and not server.takes_ids:
        step = (
            "Have it parse tool calls (vLLM: --enable-auto-tool-choice --tool-call-parser NAME), or"
            f' set {server.key("tool_calls")} to "text".'
        )
    elif status:
        step = f"Leave out what it refuses: {server.key('omit_parameters')}."
    return CheckFinding(name, "fail", problem.cause.rstrip("."), problem.next or step)


class _TrialSampler:
    """Samples as a rollout does, with one tool."""

    def __init__(
        self, server: ServerAddress, engine: Engine, seconds: float, samples: _Samples
    ) -> None:
        self._server = server
        self._engine = engine
        self._seconds = seconds
        self._samples = samples
        self._dialect: Dialect
        self._tokens: PromptTokenizer | None
        self._dialect, self._tokens = engine_probes.load_dialect(
            server.settings, token_ids=engine.token_ids
        )
        self._renderer = PromptRenderer(self._dialect, self._tokens, "keep")

    async def tool_call(self) -> CheckFinding:
        """A sampled call of the trial's tool, read as a rollout reads it. Raises HoustonError."""
        if not engine_probes.writes_trial_words(self._tokens):
            text = "its vocabulary has too few words for a trial"
            return CheckFinding("tool call", "skip", text)
        tools: Sequence[ToolSpec] = (ROUND_TRIP_TOOL,)
        head = self._renderer.head(_SYSTEM, tools, _TASK, short=False)
        guided = self._engine.token_ids
        request = SampleRequest(
            prompt_ids=head.token_ids,
            messages=head_messages(head),
            tools=head.tools,
            max_tokens=_ANSWER_TOKENS,
            stop_token_ids=tuple(self._renderer.stops),
            grammar=self._dialect.grammar(tools, _ANSWER_TOKENS) if guided else None,
            reasoning=bool(self._server.settings.get("reasoning")),
        )
        sampled = await self._sample(request)
        read = parse_action(sampled, 1, self._dialect, {ROUND_TRIP_TOOL.name: ROUND_TRIP_TOOL})
        return self._call_finding(sampled, read)

    def _call_finding(self, sampled: EngineSample, read: AgentAction) -> CheckFinding:
        wrong = read.malformed or next((call.error for call in read.calls if call.error), "")
        if not wrong:
            (call, *_) = read.calls
            arguments = ", ".join(f"{key}={value!r}" for key, value in call.arguments.items())
            return ok_finding("tool call", f"{call.name}({arguments})"[:_SHOWN])
        answer = " ".join((sampled.text or sampled.reasoning).split())
        text = f"{wrong}; it wrote {answer[:_SHOWN]!r}" if answer else wrong
        if sampled.finish_reason == "length":
            step = "Let it write more: `budget.answer_tokens` of the task, or the server's limit."
        elif self._engine.token_ids:
            step = (
                f"Set {self._server.key('dialect')} to the model's family, or take another model."
            )
        else:
            step = "Take a model that calls tools, or serve this one so that they are parsed."
        return CheckFinding("tool call", "fail", text, step)

    async def logprobs(self) -> CheckFinding:
        """Whether there is one for each token, and what they are of. Raises HoustonError."""
        if not self._engine.token_ids or self._tokens is None:
            text = "Houston asks none of an engine without token ids: its rows are rendered"
            return CheckFinding("log-probabilities", "skip", text)
        pieces = self._dialect.question("You tell stories.", "Begin one.")
        prompt = self._tokens.encode(pieces)
        warm = await self._plain(prompt, 1.0)
        greedy_sample, low_temperature_sample = (
            await self._plain(prompt, 0.0),
            await self._plain(prompt, _COLD),
        )
        if not warm.logprobs:
            return CheckFinding("log-probabilities", "fail", "there are none", _RAW_STEP)
        if (bent := _is_after_temperature(greedy_sample, low_temperature_sample)) is None:
            note = "it is too sure of its words to tell of what"
        elif bent:
            text = "they are taken after the temperature, not of the policy itself"
            return CheckFinding("log-probabilities", "fail", text, _RAW_STEP)
        else:
            note = f"of the model itself: `{warm.logprob_kind}` at temperature 1 without a grammar"
        return ok_finding("log-probabilities", f"one for each token, {note}")

    async def _plain(self, prompt: Sequence[int], temperature: float) -> EngineSample:
        return await self._sample(
            SampleRequest(
                prompt_ids=tuple(prompt),
                messages=(),
                tools=(),
                max_tokens=_PROBED_TOKENS,
                temperature=temperature,
            )
        )

    async def _sample(self, request: SampleRequest) -> EngineSample:
        try:
            async with asyncio.timeout(self._seconds):
                sampled = await self._engine.sample(request, asyncio.Event())
        except TimeoutError:
            raise HoustonError(
                f"A sample of {request.max_tokens} tokens did not finish within "
                f"{self._seconds:g} s.",
                next=f"houston engine check {self._server.name} --seconds {4 * self._seconds:g}",
            ) from None
        self._samples.answers.append(sampled)
        ids = request.prompt_ids
        self._samples.prompts.append(None if ids is None else len(ids))
        return sampled


_RAW_STEP = "vLLM: start it with --logprobs-mode raw_logprobs. Nothing else can be trained on."


def _is_after_temperature(
    greedy_sample: EngineSample, low_temperature_sample: EngineSample
) -> bool | None:
    """Whether log-probabilities change with the temperature; None where the tokens do not tell.

    greedy_sample: sampled at 0, where they are the model's own; low_temperature_sample: the same
    prompt near 0.
    """
    pairs = zip(
        greedy_sample.token_ids or (), low_temperature_sample.token_ids or (),
        greedy_sample.logprobs or (), low_temperature_sample.logprobs or (),
        strict=False,
    )  # fmt: skip
    for token, other, own, scaled in pairs:
        if token != other:
            return None
        if own < -_SURE_NATS:
            return scaled > own / 2
    return None


def _usage_finding(server: ServerAddress, samples: _Samples) -> CheckFinding:
    if not samples.answers:
        return CheckFinding("usage", "skip", "nothing was sampled")
    usage, sent = samples.answers[0].usage, samples.prompts[0]
    if usage.prompt_tokens is None or usage.completion_tokens is None:
        priced = server.settings.get("price") is not None
        text = "the answer does not say how many tokens it took"
        step = "Costs are reckoned from bytes then; `omit_parameters` must not name stream_options."
        return CheckFinding("usage", "fail" if priced else "skip", text, step)
    if sent is not None and usage.prompt_tokens != sent:
        text = f"it counts {usage.prompt_tokens} prompt tokens where {sent} were sent"
        step = f"Look at what stands between Houston and the server of {server.key('url')}."
        return CheckFinding("usage", "fail", text, step)
    cached = "not said" if usage.cached_tokens is None else f"{usage.cached_tokens:,}"
    text = f"{usage.prompt_tokens:,} prompt (cached: {cached}), {usage.completion_tokens:,} sampled"
    return ok_finding("usage", f"{text} tokens")


def _price_finding(
    loaded: LoadedConfiguration, settings: Mapping[str, Any], samples: _Samples
) -> CheckFinding:
    if settings.get("price") is None:
        step = "price = { input = 3.0, cached = 0.3, output = 15.0 }  # by the million tokens"
        return CheckFinding("price", "skip", "none: costs are not known", step)
    price = msgspec.convert(settings["price"], EnginePrice)
    cached = price.input if price.cached is None else price.cached
    text = f"{price.input:g} input, {cached:g} cached, {price.output:g} output a million tokens"
    spent = [
        price.cost(used.prompt_tokens or 0, used.cached_tokens or 0, used.completion_tokens or 0)
        for used in (answer.usage for answer in samples.answers)
    ]
    check = f"; this check cost {sum(spent):.6f}" if spent else ""
    return ok_finding("price", f"{text}{check} {loaded.config.currency}")
