"""One request to the engine: cut by an interrupt, patient with an engine that is away or refuses.

It knows engines and control; what is asked and what becomes of the answer is decided elsewhere.
"""

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from typing import Any

from houston_daemon.engines.protocol import (
    ContextOverflow,
    Engine,
    EngineRefused,
    EngineUnavailable,
    Sampled,
    SampleRequest,
)
from houston_daemon.rollout.guidance import leave, stops_sample
from houston_daemon.rollout.ledger import Link
from houston_daemon.rollout.line import Line
from houston_shared.errors import HoustonError
from houston_shared.logprob_kind import true_kind
from houston_shared.records import AWAY, Call, SampleBody
from houston_shared.wire import Moved, encode

log = logging.getLogger(__name__)
WAITS = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds between tries while the engine is away; the last one repeats."""
REFUSED_WAITS = (30.0, 60.0, 120.0, 300.0)
"""Seconds between tries of what the engine refuses; the last one repeats."""
_KEY = (
    "A key is read where the daemon was started: export NAME=… there, and houston daemon restart."
)


class Refusals:
    """A pause by `engine`: it refuses, and a person is to mend a key, an account or a model.

    The same request is sent again by itself, at least every five minutes, and at once when a person
    resumes the rollout; what is accepted ends the pause.
    """

    def __init__(self, line: Line, engine: str) -> None:
        self._line, self._engine = line, engine
        self._tries = 0

    async def wait(self, problem: EngineRefused | EngineUnavailable) -> None:
        """Pause, and wait until the next try. Raises Leaving."""
        log.warning("the engine refuses: %s", problem)
        if isinstance(problem, EngineRefused):
            await self._line.store(Moved, state="paused", by="engine", reason=self._why(problem))
        waits = REFUSED_WAITS[min(self._tries, len(REFUSED_WAITS) - 1)]
        self._tries += 1
        await self._line.standing(asyncio.sleep(waits), f"{AWAY}: {problem.cause}")

    def __bool__(self) -> bool:
        """Whether anything was refused since `over`."""
        return self._tries > 0

    async def over(self) -> None:
        """The engine accepts again: end the pause, if it is its own. Raises Leaving."""
        if not self._tries:
            return
        self._tries = 0
        said = f"the engine {self._engine} accepts requests again"
        await self._line.store(Moved, state="running", by="engine", reason=said)
        await self._line.safe_point()  # a person may have paused it meanwhile

    def _why(self, problem: EngineRefused) -> str:
        key = _KEY if problem.status in (401, 403) else ""
        again = f"houston rollout resume {self._line.rollout}"
        asks = f"It is asked again by itself every few minutes, and at once after {again}."
        cause = problem.cause.replace("The engine", f"Engine {self._engine}", 1)
        parts = (cause, problem.next, key, asks)
        return " ".join(part for part in parts if part)


class Sampler:
    """Samples from one engine for one rollout."""

    def __init__(self, engine: Engine, line: Line) -> None:
        self.engine = engine
        self.line = line
        self._refusals = Refusals(line, engine.name)

    async def sample(self, request: SampleRequest, interruptible: bool = True) -> Sampled:
        """Sample once; waits, without spending active time, while the engine is away, and paused
        while it refuses.

        Raises Leaving, ContextOverflow, and HoustonError when the engine saw another prompt.
        """
        for tries in range(1_000_000):
            self.line.activity = "sampling" if request.role == "policy" else request.role
            try:
                sampled = _checked(request, await self._once(request, interruptible))
                await self._refusals.over()
                return sampled
            except ContextOverflow:
                await self._refusals.over()
                raise
            except EngineRefused as problem:
                await self._refusals.wait(problem)
            except EngineUnavailable as problem:
                await self._away(problem, tries)
        raise HoustonError("The engine never came back.")

    async def refused(self, problem: ContextOverflow) -> None:
        """Wait, paused, for an engine that takes longer prompts. Raises Leaving."""
        await self._refusals.wait(problem)

    async def _once(self, request: SampleRequest, interruptible: bool) -> Sampled:
        stop = asyncio.Event()
        control = self.line.control
        task = asyncio.create_task(self.engine.sample(request, stop))
        try:
            while not task.done():
                leave(control.now)
                if interruptible and stops_sample(control.now):
                    stop.set()
                await control.wait({task}, None)
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=2.0)

    async def _away(self, problem: EngineUnavailable, tries: int) -> None:
        """Wait before the next try; a change of control cuts it, so that leaving is quick."""
        if self._refusals:  # its own pause is no reason to stand still until somebody ends it
            return await self._refusals.wait(problem)
        log.warning("the engine is away: %s", problem)
        self.line.activity = f"{AWAY}: {problem.cause}"
        seconds = WAITS[min(tries, len(WAITS) - 1)]
        with self.line.clock.excluded():
            await self.line.control.wait((), seconds)
            await self.line.safe_point()


def _checked(request: SampleRequest, sampled: Sampled) -> Sampled:
    """Refuse a sample whose prompt was not the one that was sent."""
    seen, sent = sampled.prompt_ids, request.prompt_ids
    if seen is None or sent is None or tuple(seen) == tuple(sent):
        return sampled
    raise HoustonError(
        f"The engine saw a prompt of {len(seen)} tokens that is not the one of {len(sent)} tokens "
        "that was sent.",
        "Nothing of its answer was used.",
    )


def ledger_entry(
    request: SampleRequest,
    sampled: Sampled,
    link: Link,
    engine: str,
    *,
    thought: str,
    calls: tuple[Call, ...] = (),
    malformed: str = "",
) -> SampleBody:
    """What the ledger keeps of one request."""
    prompt, usage = request.prompt_ids, sampled.usage
    parameters = _parameters(request, sampled.parameters)
    return SampleBody(
        role=request.role,
        parent_seq=link.parent_seq,
        kept=link.kept,
        new_prompt_ids=link.new,
        token_ids=None if sampled.token_ids is None else tuple(sampled.token_ids),
        logprobs=None if sampled.logprobs is None else tuple(sampled.logprobs),
        logprob_kind=true_kind(sampled.logprob_kind, parameters),
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
        seconds=round(sampled.seconds, 6),
    )


def _parameters(request: SampleRequest, sent: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling parameters as sent; a grammar by its hash."""
    asked = {"temperature": request.temperature, "top_p": request.top_p}
    parameters = dict(sent) or {name: one for name, one in asked.items() if one is not None}
    if request.grammar is not None:
        parameters["grammar"] = hashlib.sha256(encode(request.grammar)).hexdigest()[:16]
    return parameters
