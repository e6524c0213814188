"""One window, asked until its answer can be used; then kept, and never asked again.

A token engine decodes by the answer's schema, a chat endpoint gets it as a tool, and either may
write the object as text. What was wrong with an answer is told with the next try. What is not
decided after the last one stays undecided.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from houston_daemon.dialects.protocol import Dialect
from houston_daemon.engines.protocol import Engine, EngineRefused, Sampled, SampleRequest
from houston_daemon.rollout.tokens import Characters, Tokens
from houston_daemon.supervision.judge import answers
from houston_daemon.supervision.judge.answers import Judged, Reading
from houston_daemon.supervision.judge.cache import Cache, Kept, key
from houston_daemon.supervision.judge.cost import Cost
from houston_daemon.supervision.judge.template import Template
from houston_daemon.supervision.judge.windows import Window
from houston_shared.config_judge import Judge
from houston_shared.records import Message
from houston_shared.secret_values import redact

REASONING_TOKENS = 4_096
"""Room for what a chat model writes before its answer, where it may."""


@dataclass(frozen=True, slots=True)
class Desk:
    """Where a judge is asked: an engine, and what its prompts are made with."""

    name: str
    engine: Engine
    model: str
    """What it serves, for the cache: a name, or the folder of a child's model."""
    window: int
    """Largest prompt + answer in tokens."""
    tokens: Tokens | Characters
    dialect: Dialect | None
    """None for chat endpoints."""
    policy: str = ""
    reasoning: bool = False

    @property
    def room(self) -> int:
        """Tokens that prompt and answer of a window may take. Where they are only reckoned from
        bytes, a third is left over: code is dearer than words."""
        room = self.window - (REASONING_TOKENS if self.reasoning else 0)
        return room if isinstance(self.tokens, Tokens) else room * 2 // 3

    def encoded(self, system: str, message: str) -> tuple[int, ...] | None:
        """The prompt as ids; None for an engine without ids."""
        if self.dialect is None or not isinstance(self.tokens, Tokens):
            return None
        return tuple(self.tokens.encode(self.dialect.question(system, message)))


@dataclass(frozen=True, slots=True)
class Decided:
    """What a judge said of a window."""

    window: Window
    steps: Mapping[int, Judged]
    problem: str = ""
    """Why steps of it are undecided; empty where none is."""
    cached: bool = False

    @property
    def undecided(self) -> tuple[int, ...]:
        """Steps without a verdict."""
        return tuple(step for step in self.window.judged if step not in self.steps)


class Asking:
    """Asks about windows with one template and one set of parameters."""

    def __init__(
        self, desk: Desk, template: Template, settings: Judge, cache: Cache | None, cost: Cost
    ) -> None:
        self.desk = desk
        self.template = template
        self._settings = settings
        self._cache = cache
        self.cost = cost

    def known(self, window: Window) -> bool:
        """Whether its answer was kept from before."""
        return self._cache is not None and self._cache.get(self._key(window)) is not None

    async def decide(self, window: Window) -> Decided:
        """Verdicts on the window's steps. Raises EngineUnavailable and EngineRefused."""
        self.cost.windows += 1
        name = self._key(window)
        kept = self._cache.get(name) if self._cache else None
        if kept is not None:
            reading = answers.read(kept.answer, window.judged)
            if not reading.problem:
                self.cost.cached += 1
                return Decided(window, reading.steps, cached=True)
        return await self._ask(window, name)

    async def _ask(self, window: Window, name: str) -> Decided:
        best = Reading({}, "it was not asked")
        asked = ", ".join(map(str, window.judged))
        message = window.message
        spent = Kept(
            answer="", engine=self.desk.name, template=self.template.digest,
            prompt_tokens=0, sampled_tokens=0, seconds=0.0, tries=0,
        )  # fmt: skip
        for number in range(1, self._settings.tries + 1):
            sampled, prompt = await self._sample(window, message)
            spent = self._count(spent, sampled, prompt, number)
            said = _answer(sampled)
            reading = answers.read(said, window.judged)
            if not reading.problem:
                self._remember(name, msgspec.structs.replace(spent, answer=_written(said)))
                return Decided(window, reading.steps)
            self.cost.unusable += 1
            problem = _cut_off(sampled, reading.problem)
            best = Reading({**best.steps, **reading.steps}, problem)
            message = f"{window.message}\n\n{self.template.once_more(problem, asked)}"
        undecided = [step for step in window.judged if step not in best.steps]
        return Decided(window, best.steps, best.problem if undecided else "")

    def _remember(self, name: str, kept: Kept) -> None:
        """Keep an answer. That it cannot be kept costs the next run and nothing else."""
        if self._cache is None:
            return
        try:
            self._cache.put(name, kept)
        except OSError as problem:
            self.cost.unkept = problem.strerror or str(problem)

    async def _sample(self, window: Window, message: str) -> tuple[Sampled, int]:
        """One request, and the tokens of its prompt."""
        ids = self.desk.encoded(window.system, message)
        size = self._size(window, message) if ids is None else len(ids)
        request = self._request(window, message, ids, self.desk.window - size)
        if request.max_tokens < 1:
            raise EngineRefused(f"The prompt of {size} tokens leaves no room for an answer.")
        self.cost.requests += 1
        return await self.desk.engine.sample(request, asyncio.Event()), size

    def _request(
        self, window: Window, message: str, ids: tuple[int, ...] | None, room: int
    ) -> SampleRequest:
        desk = self.desk
        stops = desk.dialect.stop_tokens if desk.dialect else ()
        found = [desk.tokens.id_of(stop) for stop in stops if isinstance(desk.tokens, Tokens)]
        extra = REASONING_TOKENS if desk.reasoning else 0
        return SampleRequest(
            prompt_ids=ids,
            messages=(
                Message(role="system", content=window.system),
                Message(role="user", content=message),
            ),
            tools=(answers.tool(window.judged),) if ids is None else (),
            max_tokens=min(answers.MOST * window.answer_tokens + extra, room),
            stop_token_ids=tuple(one for one in found if one is not None),
            grammar=answers.schema(window.judged) if ids is not None else None,
            temperature=self._settings.temperature,
            policy=desk.policy,
            reasoning=desk.reasoning,
            cache_salt=desk.policy,
            role="judge",
            step=window.judged[0],
        )

    def _count(self, spent: Kept, sampled: Sampled, prompt: int, tries: int) -> Kept:
        """Add a request to the sums; what this window has cost so far."""
        told = sampled.token_ids
        answered = self.desk.tokens.count(str(_answer(sampled))) if told is None else len(told)
        self.cost.about |= told is None
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

    def _size(self, window: Window, message: str) -> int:
        return window.tokens + self.desk.tokens.count(message[len(window.message) :])

    def _key(self, window: Window) -> str:
        desk = self.desk
        return key(
            {
                "template": self.template.digest,
                "engine": desk.name,
                "model": desk.model,
                "policy": desk.policy,
                "dialect": desk.dialect.name if desk.dialect else "",
                "reasoning": desk.reasoning,
                "temperature": self._settings.temperature,
                "system": window.system,
                "message": window.message,
                "judged": window.judged,
            }
        )


def _answer(sampled: Sampled) -> str | Mapping[str, Any]:
    """The arguments of the tool that was given, where it was called; else the text."""
    for call in sampled.calls or ():
        if call.name == answers.TOOL and not call.error:
            return call.arguments
    return sampled.text


def _written(said: str | Mapping[str, Any]) -> str:
    text = said if isinstance(said, str) else msgspec.json.encode(said).decode()
    return redact(text)


def _cut_off(sampled: Sampled, problem: str) -> str:
    if sampled.finish_reason != "length":
        return problem
    return f"it was cut at its limit of tokens; {problem}"
