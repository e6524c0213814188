"""Samples answers for a trainer outside of rollouts: decisions at recorded states, critiques of
attempts.

It waits while the engine is away, and asks again. The caller makes the requests.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from houston_daemon.agent.rollout_setup import tokenizer_file
from houston_daemon.agent.sample_requests import require_sent_prompt
from houston_daemon.engines.engine_protocol import (
    Engine,
    EngineSample,
    EngineUnavailable,
    SampleRequest,
)
from houston_daemon.engines.engine_registry import choose_engine
from houston_daemon.engines.logprob_kind import (
    non_neutral_sampling,
    settings_text,
    true_logprob_kind,
)
from houston_daemon.review.judge.judge_client import JudgeClient
from houston_daemon.review.judge.judge_engine import JudgeEnginePlace, make_judge_client
from houston_daemon.training.credit.policy_gradient_rows import RATIO_LOGPROB_KIND
from houston_daemon.training.policies.policy_files import require_policy
from houston_daemon.training.rl.rollout_groups import StopRequested
from houston_shared.backoff import RetryPolicy
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import HoustonError
from houston_shared.policy_and_run_files import BASE_MODEL, policies_folder
from houston_shared.store.store_reader import Reader

REQUESTS_AT_ONCE = 64
_RETRIES = RetryPolicy(first_wait=1.0, max_wait=30.0)
_STARTING_POLL_SECONDS = 0.2
_DAEMON_TELLS_SECONDS = 10.0
Answer = TypeVar("Answer")


class SampledPolicy(NamedTuple):
    """With which policy an engine is asked."""

    name: str
    """Empty for the engine's own model."""
    hash: str
    settings: dict[str, Any]
    """Of the engine's client, so that it can load an adapter again."""


def read_sampled_policy(reader: Reader, name: str) -> SampledPolicy:
    """An adapter of the engine's model; `base` or nothing for that model itself. Raises
    HoustonError for a policy that there is not."""
    if name in ("", BASE_MODEL):
        return SampledPolicy("", "", {})
    policy = require_policy(reader, name)
    if policy.kind == "base":
        return SampledPolicy("", "", {})
    folder = str(policies_folder(reader.home) / policy.folder)
    settings = {"adapters": {name: folder}, "adapter_hashes": {name: policy.hash}}
    return SampledPolicy(name, policy.hash, settings)


def drawn_logprobs(answer: EngineSample) -> list[float] | None:
    """Log-probabilities of an answer's tokens as they were drawn; None where the engine's are of
    something else."""
    kind = true_logprob_kind(answer.logprob_kind, answer.parameters)
    drawn = kind == RATIO_LOGPROB_KIND and answer.logprobs is not None
    return list(answer.logprobs or ()) if drawn else None


class EngineSampler:
    """Asks one engine, as a rule the one that is trained. Blocks."""

    def __init__(
        self,
        loaded: LoadedConfiguration,
        engine: str,
        stop: Callable[[], bool],
        tell: Callable[[str], None],
        trained: bool = False,
    ) -> None:
        """stop: asked while the engine is away. tell: takes a line about that, and an empty one
        once it answers again. trained: whether the answers are, so that they must be drawn as the
        policy says."""
        self._place = JudgeEnginePlace(loaded, engine, tell)
        self._stop = stop
        self._tell = tell
        self._trained = trained

    @property
    def tokenizer(self) -> Path:
        """The file of the engine's. Raises ConfigurationError where it is not known."""
        return Path(tokenizer_file(self._place.settings))

    def sample(
        self,
        policy: SampledPolicy,
        requests: Callable[[JudgeClient], Sequence[SampleRequest]],
    ) -> list[EngineSample]:
        """An answer to each request, in order. requests: made once the engine answers, for its
        window and tokenizer. Raises StopRequested, and HoustonError where the engine refuses, saw
        another prompt, or samples answers to be trained from another distribution than the
        policy's."""
        return asyncio.run(self._sample_all(policy, requests))

    async def _sample_all(
        self,
        policy: SampledPolicy,
        requests: Callable[[JudgeClient], Sequence[SampleRequest]],
    ) -> list[EngineSample]:
        place = self._place
        defaults = await asyncio.to_thread(self._child_settings) if place.child else place.settings
        settings = {**defaults, **policy.settings}
        engine = choose_engine(settings, None, self._place.name)
        turns = asyncio.Semaphore(REQUESTS_AT_ONCE)
        try:
            await self._retry_until_available(engine.ready)
            client = make_judge_client(self._place.name, engine, settings, policy.name)
            return await asyncio.gather(
                *(self._sample_one(engine, turns, request) for request in requests(client))
            )
        finally:
            await engine.close()

    def _child_settings(self) -> dict[str, Any]:
        """Its settings, with where it answers. The daemon brings it up when it is given a policy or
        its own model; what it tells of that may be a moment old, so silence is waited for, too."""
        patience = time.monotonic() + _DAEMON_TELLS_SECONDS
        while (state := self._place.daemon_state()) != "ready":
            if not state and time.monotonic() > patience:
                break  # a daemon that was started since does not watch it, but it may run
            if self._stop():
                raise StopRequested
            self._tell(f"engine {self._place.name}: {state or 'is starting'}")
            time.sleep(_STARTING_POLL_SECONDS)
        self._tell("")
        return self._place.child_settings()

    async def _sample_one(
        self, engine: Engine, turns: asyncio.Semaphore, request: SampleRequest
    ) -> EngineSample:
        async with turns:
            answer = require_sent_prompt(
                request,
                await self._retry_until_available(lambda: engine.sample(request, asyncio.Event())),
            )
        if self._trained and (bent := non_neutral_sampling(answer.parameters)):
            raise HoustonError(
                f"Engine {self._place.name} answered with {settings_text(bent)}: the policy would"
                " be trained on answers that are not its own.",
                "Nothing was trained further.",
                f"Leave {', '.join(bent)} out of parameters and omit_parameters of the engine",
            )
        return answer

    async def _retry_until_available(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        for tries in itertools.count(1):
            if self._stop():
                raise StopRequested
            try:
                answer = await ask()
            except EngineUnavailable as problem:
                self._tell(problem.cause)
                await asyncio.sleep(_RETRIES.wait(tries))
                continue
            if tries > 1:
                self._tell("")
            return answer
        raise AssertionError("it is asked until it answers")
