"""Asks a judge one question until its answer can be used; the answer is cached and not asked again.

A `JudgeClient` is an engine with what prompts are made with; a `QuestionAsker` asks it, says in
each retry what was wrong with the last answer, and counts the cost (`JudgeCost`). Whatever is
undecided after the last try stays undecided. `WindowJudge` asks about the steps of a window.
`judge_engine` provides the engines.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from houston_daemon.agent.sample_requests import with_cost
from houston_daemon.engines.engine_protocol import (
    Engine,
    EngineRefused,
    EngineSample,
    SampleRequest,
)
from houston_daemon.prompts.dialect_protocol import Dialect
from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer, TokenEstimator
from houston_daemon.review.judge import judge_answers
from houston_daemon.review.judge.judge_answers import JudgedStep
from houston_daemon.review.judge.judge_cache import CachedAnswer, JudgeCache, cache_key
from houston_daemon.review.judge.judge_prompt import JudgeWindow
from houston_daemon.review.judge.judge_template import JudgeTemplate
from houston_shared.config_sections import JudgeSettings
from houston_shared.engine_settings import EnginePrice
from houston_shared.records import Message
from houston_shared.secret_redaction import redact
from houston_shared.times_and_counts import pluralize

MILLION = 1_000_000
Value = TypeVar("Value")


@dataclass(slots=True)
class JudgeCost:
    """Sums over questions; added to from one event loop."""

    questions: int = 0
    cached: int = 0
    """Questions whose answer was kept from before."""
    requests: int = 0
    """Samples that were asked for, repetitions included."""
    unusable: int = 0
    """Answers that could not be used as they were."""
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    about: bool = False
    """Whether tokens are reckoned from bytes, where a chat endpoint does not say them."""
    seconds: float = 0.0
    """Of all requests together; several run at once."""
    cost: float | None = None
    """By the engine's price; None where none is declared."""
    unkept: str = ""
    """Why answers could not be kept for the next time; empty when they were."""

    def add(self, cost: "JudgeCost") -> None:
        """Add another's sums."""
        self.questions += cost.questions
        self.cached += cost.cached
        self.requests += cost.requests
        self.unusable += cost.unusable
        self.prompt_tokens += cost.prompt_tokens
        self.sampled_tokens += cost.sampled_tokens
        self.about |= cost.about
        self.seconds += cost.seconds
        self.unkept = self.unkept or cost.unkept
        if cost.cost is not None:
            self.cost = (self.cost or 0.0) + cost.cost

    def price(self, settings: JudgeSettings) -> float | None:
        """What the requests cost, by the prices of `[judge]` or else of the engine; None where no
        price is named."""
        if not (settings.price_prompt or settings.price_sampled):
            return self.cost
        prompt = self.prompt_tokens * settings.price_prompt
        return (prompt + self.sampled_tokens * settings.price_sampled) / MILLION

    def as_json(self, settings: JudgeSettings, unit: str = "window") -> dict[str, Any]:
        """The same as an object, for `--json`. unit: what one question is about."""
        return {
            f"{unit}s": self.questions,
            "cached": self.cached,
            "requests": self.requests,
            "unusable": self.unusable,
            "prompt_tokens": self.prompt_tokens,
            "sampled_tokens": self.sampled_tokens,
            "tokens_reckoned": self.about,
            "seconds": round(self.seconds, 3),
            "price": self.price(settings),
            "currency": settings.currency if self.price(settings) is not None else None,
        }

    def words(self, settings: JudgeSettings, unit: str = "window") -> str:
        """The same in one line."""
        about = "about " if self.about else ""
        line = (
            f"{pluralize(self.questions, unit)}, {self.cached} of them from the cache; "
            f"{pluralize(self.requests, 'request')}, {pluralize(self.unusable, 'answer')} of no"
            " use, with "
            f"{about}{self.prompt_tokens:,} prompt and "
            f"{self.sampled_tokens:,} sampled tokens in {self.seconds:.1f} s"
        )
        price = self.price(settings)
        if price is not None:
            line += f"; {price:.4f} {settings.currency}"
        return f"{line}; answers were not kept: {self.unkept}" if self.unkept else line


REASONING_TOKENS = 4_096
"""Room for what a chat model writes before its answer, where it may."""


@dataclass(frozen=True, slots=True)
class JudgeClient:
    """Where a judge is asked: an engine, and what its prompts are made with."""

    name: str
    engine: Engine
    model: str
    """What it serves, for the cache: a name, or the folder of a child's model."""
    window: int
    """Largest prompt + answer in tokens."""
    tokens: PromptTokenizer | TokenEstimator
    dialect: Dialect | None
    """None for chat endpoints."""
    policy: str = ""
    reasoning: bool = False
    price: EnginePrice | None = None
    """What its tokens cost."""

    @property
    def token_budget(self) -> int:
        """Tokens that prompt and answer of a window may take. If they are only estimated from
        bytes, a third is left unused: code takes more tokens than words."""
        room = self.window - (REASONING_TOKENS if self.reasoning else 0)
        return room if isinstance(self.tokens, PromptTokenizer) else room * 2 // 3

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Ids that end an answer; none for an engine without ids."""
        if self.dialect is None or not isinstance(self.tokens, PromptTokenizer):
            return ()
        ids = map(self.tokens.id_of, self.dialect.stop_tokens)
        return tuple(stop for stop in ids if stop is not None)

    def encode_question(self, system: str, message: str) -> tuple[int, ...] | None:
        """The prompt as ids; None for an engine without ids."""
        if self.dialect is None or not isinstance(self.tokens, PromptTokenizer):
            return None
        return tuple(self.tokens.encode(self.dialect.question(system, message)))


def question_messages(system: str, message: str) -> tuple[Message, ...]:
    """A question as a chat endpoint is sent it."""
    return (Message(role="system", content=system), Message(role="user", content=message))


@dataclass(frozen=True, slots=True)
class WindowDecision:
    """What a judge said of a window."""

    window: JudgeWindow
    steps: Mapping[int, JudgedStep]
    problem: str = ""
    """Why steps of it are undecided; empty where none is."""
    cached: bool = False

    @property
    def undecided(self) -> tuple[int, ...]:
        """Steps without a verdict."""
        return tuple(step for step in self.window.judged if step not in self.steps)


@dataclass(frozen=True, slots=True)
class JudgeQuestion(Generic[Value]):
    """One question to a judge, and how its answer is read."""

    system: str
    message: str
    tokens: int
    """Of the prompt, about."""
    answer_tokens: int
    """Most tokens that the answer needs; it gets more where there is room."""
    tool: Mapping[str, Any]
    """What a chat endpoint is to call; its parameters are the schema of an answer."""
    step: int
    """The (first) step it is about."""
    digest: str
    """SHA-256 of the words that ask, hex."""
    parse: Callable[[str | Mapping[str, Any]], tuple[Value, str]]
    """What could be read of an answer, and what is wrong with it; empty where nothing is."""
    retry: Callable[[str], str]
    """What follows the message, by what was wrong with the last answer."""
    key: Mapping[str, Any]
    """What else makes the answer, for the cache."""


class Answered(NamedTuple, Generic[Value]):
    """What came of a question."""

    values: list[Value]
    """What could be read of each answer, the last one last."""
    problem: str = ""
    """What is wrong with the last answer; empty where it can be used."""
    cached: bool = False


class QuestionAsker:
    """Asks one client with one set of parameters, and counts what that costs."""

    def __init__(
        self,
        client: JudgeClient,
        settings: JudgeSettings,
        cache: JudgeCache | None,
        cost: JudgeCost,
    ) -> None:
        self.client = client
        self._settings = settings
        self._cache = cache
        self.cost = cost

    def is_cached(self, question: JudgeQuestion[Any]) -> bool:
        """Whether its answer was kept from before."""
        return self._cache is not None and self._cache.get(self._key(question)) is not None

    async def ask(self, question: JudgeQuestion[Value]) -> Answered[Value]:
        """Ask until an answer can be used. Raises EngineUnavailable and EngineRefused."""
        self.cost.questions += 1
        name = self._key(question)
        cached = self._cache.get(name) if self._cache else None
        if cached is not None:
            value, problem = question.parse(cached.answer)
            if not problem:
                self.cost.cached += 1
                return Answered([value], cached=True)
        return await self._ask(question, name)

    async def _ask(self, question: JudgeQuestion[Value], name: str) -> Answered[Value]:
        values: list[Value] = []
        problem, message = "it was not asked", question.message
        spent = CachedAnswer(
            answer="", engine=self.client.name, template=question.digest,
            prompt_tokens=0, sampled_tokens=0, seconds=0.0, tries=0,
        )  # fmt: skip
        for number in range(1, self._settings.tries + 1):
            sampled, prompt = await self._sample(question, message)
            answer = _sampled_answer(sampled, question.tool["name"])
            spent = self._count(spent, sampled, answer, prompt, number)
            value, problem = question.parse(answer)
            values.append(value)
            if not problem:
                self._remember(name, msgspec.structs.replace(spent, answer=_answer_text(answer)))
                return Answered(values)
            self.cost.unusable += 1
            problem = _with_length_limit(sampled, problem)
            message = f"{question.message}\n\n{question.retry(problem)}"
        return Answered(values, problem)

    def _remember(self, name: str, answer: CachedAnswer) -> None:
        """Keep an answer. That it cannot be kept costs the next run and nothing else."""
        if self._cache is None:
            return
        try:
            self._cache.put(name, answer)
        except OSError as problem:
            self.cost.unkept = problem.strerror or str(problem)

    async def _sample(self, question: JudgeQuestion[Any], message: str) -> tuple[EngineSample, int]:
        """One request, and the tokens of its prompt."""
        ids = self.client.encode_question(question.system, message)
        more = message[len(question.message) :]
        size = question.tokens + self.client.tokens.count(more) if ids is None else len(ids)
        request = self._request(question, message, ids, self.client.window - size)
        if request.max_tokens < 1:
            raise EngineRefused(f"The prompt of {size} tokens leaves no room for an answer.")
        self.cost.requests += 1
        sampled = await self.client.engine.sample(request, asyncio.Event())
        if self.client.price is not None:
            sampled = with_cost(request, sampled, self.client.price)
            self.cost.cost = (self.cost.cost or 0.0) + (sampled.usage.cost or 0.0)
        return sampled, size

    def _request(
        self, question: JudgeQuestion[Any], message: str, ids: tuple[int, ...] | None, room: int
    ) -> SampleRequest:
        client = self.client
        extra = REASONING_TOKENS if client.reasoning else 0
        answer_room = judge_answers.ANSWER_ROOM_FACTOR * question.answer_tokens + extra
        return SampleRequest(
            prompt_ids=ids,
            messages=question_messages(question.system, message),
            tools=(dict(question.tool),) if ids is None else (),
            max_tokens=min(answer_room, room),
            stop_token_ids=client.stop_token_ids,
            grammar=question.tool["parameters"] if ids is not None else None,
            temperature=self._settings.temperature,
            policy=client.policy,
            reasoning=client.reasoning,
            cache_salt=client.policy,
            role="judge",
            step=question.step,
        )

    def _count(
        self,
        spent: CachedAnswer,
        sampled: EngineSample,
        answer: str | Mapping[str, Any],
        prompt: int,
        tries: int,
    ) -> CachedAnswer:
        """Add a request to the sums; what this question has cost so far."""
        ids, usage = sampled.token_ids, sampled.usage
        if ids is not None:
            answered = len(ids)
        elif usage.prompt_tokens is not None and usage.completion_tokens is not None:
            prompt, answered = usage.prompt_tokens, usage.completion_tokens
        else:
            answered = self.client.tokens.count(str(answer))
            self.cost.about = True
        self.cost.prompt_tokens += prompt
        self.cost.sampled_tokens += answered
        self.cost.seconds += sampled.seconds
        return msgspec.structs.replace(
            spent,
            prompt_tokens=spent.prompt_tokens + prompt,
            sampled_tokens=spent.sampled_tokens + answered,
            seconds=spent.seconds + sampled.seconds,
            tries=tries,
        )

    def _key(self, question: JudgeQuestion[Any]) -> str:
        client = self.client
        return cache_key(
            {
                "template": question.digest,
                "engine": client.name,
                "model": client.model,
                "policy": client.policy,
                "dialect": client.dialect.name if client.dialect else "",
                "reasoning": client.reasoning,
                "temperature": self._settings.temperature,
                "system": question.system,
                "message": question.message,
                **question.key,
            }
        )


class WindowJudge:
    """Asks about windows with one template and one set of parameters."""

    def __init__(
        self,
        client: JudgeClient,
        template: JudgeTemplate,
        settings: JudgeSettings,
        cache: JudgeCache | None,
        cost: JudgeCost,
    ) -> None:
        self.client = client
        self.template = template
        self.cost = cost
        self._asker = QuestionAsker(client, settings, cache, cost)

    def is_cached(self, window: JudgeWindow) -> bool:
        """Whether its answer was kept from before."""
        return self._asker.is_cached(self._question(window))

    async def judge_window(self, window: JudgeWindow) -> WindowDecision:
        """Verdicts on the window's steps. Raises EngineUnavailable and EngineRefused."""
        answered = await self._asker.ask(self._question(window))
        steps: dict[int, JudgedStep] = {}
        for judged_steps in answered.values:
            steps |= judged_steps
        undecided = [step for step in window.judged if step not in steps]
        return WindowDecision(window, steps, answered.problem if undecided else "", answered.cached)

    def _question(self, window: JudgeWindow) -> JudgeQuestion[Mapping[int, JudgedStep]]:
        numbers = ", ".join(map(str, window.judged))
        return JudgeQuestion(
            system=window.system,
            message=window.message,
            tokens=window.tokens,
            answer_tokens=window.answer_tokens,
            tool=judge_answers.answer_tool(window.judged),
            step=window.judged[0],
            digest=self.template.digest,
            parse=lambda answer: judge_answers.parse_answer(answer, window.judged),
            retry=lambda problem: self.template.retry_message(problem, numbers),
            key={"judged": window.judged},
        )


def _sampled_answer(sampled: EngineSample, tool: str) -> str | Mapping[str, Any]:
    """The arguments of the tool that was given, where it was called; else the text."""
    for call in sampled.calls or ():
        if call.name == tool and not call.error:
            return call.arguments
    return sampled.text


def _answer_text(answer: str | Mapping[str, Any]) -> str:
    text = answer if isinstance(answer, str) else msgspec.json.encode(answer).decode()
    return redact(text)


def _with_length_limit(sampled: EngineSample, problem: str) -> str:
    if sampled.finish_reason != "length":
        return problem
    return f"it was cut at its limit of tokens; {problem}"
