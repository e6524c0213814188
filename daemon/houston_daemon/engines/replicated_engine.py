"""An engine of several servers that serve the same model: each rollout keeps to one of them.

A rollout's replica is the first in its own order of all (rendezvous hashing). So its context stays
in one prefix cache, whichever worker asks and after any restart; and when a replica is away, only
its rollouts move, spread over the others. A request that a replica does not answer is sent whole to
the next, as to an engine that came back. `take_replicas` says which servers there are and which the
daemon found to be down; each server's client (`token_engine`) knows what a request costs and
whether the server has a policy's adapter.

Rendezvous hashing: Thaler and Ravishankar, "A name-based mapping scheme for rendezvous" (1996).
"""

import asyncio
import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from houston_daemon.engines.engine_http import TransientFailure, with_retries
from houston_daemon.engines.engine_protocol import (
    ContextOverflow,
    Engine,
    EngineRefused,
    EngineSample,
    EngineUnavailable,
    SampleRequest,
)
from houston_shared.backoff import Backoff, RetryPolicy
from houston_shared.errors import HoustonError
from houston_shared.wire import EngineReplica, ReplicaUse, WorkerControl

log = logging.getLogger(__name__)
REFUSED_REST_SECONDS = 30.0
"""How long a replica is passed over that refused what another may take: a key, an adapter."""


class ReplicatedEngine:
    """Asks the replicas of one engine. Serves any number of rollouts from one event loop."""

    def __init__(
        self,
        name: str,
        replicas: Sequence[EngineReplica],
        make: Callable[[EngineReplica], Engine],
        retry: RetryPolicy | None = None,
    ) -> None:
        """make: the client of one server, which tries once. replicas: one at least. retry: how
        often all are asked, while none answers."""
        self.name = name
        self._make = make
        self._retry = retry or RetryPolicy()
        self._replicas = tuple(replicas)
        self._changed = asyncio.Event()
        """Set, and replaced, when other replicas are told."""
        self._clients: dict[tuple[str, str], Engine] = {}
        """By name and URL: a replica at another address has another client."""
        self._backoffs: dict[str, Backoff] = {}
        """Replicas that failed, by name, and until when they are passed over."""
        self._requests: dict[str, Counter[str]] = {}
        """Rollout → the replicas that answer it now."""
        first = self._client(self._replicas[0])
        self.token_ids, self.window = first.token_ids, first.window

    def use(self, replicas: Sequence[EngineReplica]) -> None:
        """Take the present replicas; requests at one that is down move to another."""
        if not replicas or tuple(replicas) == self._replicas:
            return
        before = {replica.name: replica.state for replica in self._replicas}
        for replica in replicas:
            if replica.state == "ready" != before.get(replica.name):
                self._backoffs.pop(replica.name, None)
        self._replicas = tuple(replicas)
        self._changed.set()
        self._changed = asyncio.Event()

    def use_of(self, rollout: str) -> ReplicaUse | None:
        """The replica that a rollout keeps to; None while there is none."""
        if counts := self._requests.get(rollout):
            ((replica, requests),) = counts.most_common(1)
            return ReplicaUse(replica, requests)
        order = self._order(rollout)
        return ReplicaUse(order[0].name) if order else None

    async def ready(self) -> None:
        """Return when one of the servers answers."""
        problems: list[EngineUnavailable | EngineRefused] = []
        for replica in self._order(""):
            client = self._client(replica)
            try:
                await client.ready()
            except (EngineUnavailable, EngineRefused) as problem:
                problems.append(problem)
                continue
            self.window = self.window or client.window
            return
        raise problems[0] if problems else EngineUnavailable(f"{self._unavailable_message()}.")

    async def close(self) -> None:
        """Close connections."""
        for client in self._clients.values():
            await client.close()

    async def sample(self, request: SampleRequest, stop: asyncio.Event) -> EngineSample:
        """Sample once; see the protocol."""

        async def once() -> EngineSample:
            return await self._ask_in_turn(request, stop)

        sampled = await with_retries(self.name, once, stop, self._retry, request.waiting)
        if sampled is None:  # stopped while all were away
            ids: tuple[int, ...] | None = () if self.token_ids else None
            return EngineSample(
                "", "interrupted", token_ids=ids, logprobs=() if ids == () else None
            )
        return sampled

    # --- which one, and the next ----------------------------------------------------------------

    async def _ask_in_turn(self, request: SampleRequest, stop: asyncio.Event) -> EngineSample:
        """Ask the rollout's replica, then the others. Raises TransientFailure where none answers,
        and EngineRefused where all refuse."""
        outages: list[EngineUnavailable] = []
        refused: list[EngineRefused] = []
        for replica in self._order(_routing_key(request)):
            try:
                sampled = await self._ask(replica, request, stop)
            except ContextOverflow:  # as long for all of them
                raise
            except EngineRefused as problem:
                refused.append(problem)
                self._pass_over(replica, REFUSED_REST_SECONDS, problem)
            except EngineUnavailable as problem:
                outages.append(problem)
                self._pass_over(replica, problem.after, problem)
            else:
                self._backoffs.pop(replica.name, None)
                return sampled
        if refused and not outages:
            raise refused[0]
        afters = [problem.after for problem in outages if problem.after is not None]
        after = min(afters) if afters and len(afters) == len(outages) else None
        reasons = [problem.cause.rstrip(".") for problem in (*outages, *refused)]
        raise TransientFailure("; ".join(reasons) or self._unavailable_message(), after)

    async def _ask(
        self, replica: EngineReplica, request: SampleRequest, stop: asyncio.Event
    ) -> EngineSample:
        """Ask one. Raises EngineUnavailable when it is found to be down meanwhile, and another is
        there."""
        with self._count_request(request.rollout, replica):
            asking = asyncio.ensure_future(self._client(replica).sample(request, stop))
            try:
                while not asking.done():
                    changed = asyncio.ensure_future(self._changed.wait())
                    await asyncio.wait({asking, changed}, return_when=asyncio.FIRST_COMPLETED)
                    changed.cancel()
                    if not asking.done() and (reason := self._down_reason(replica)):
                        raise EngineUnavailable(f"Engine {replica.name} is down: {reason}.")
                return asking.result()
            finally:
                if not asking.done():
                    asking.cancel()
                    await asyncio.wait({asking})

    def _order(self, rollout: str) -> list[EngineReplica]:
        """The replicas that may be asked, as one rollout asks them: the ready ones by their
        weights, or else those that are draining; who failed just now only where all did."""
        states = [replica.state for replica in self._replicas]
        state = next((each for each in ("ready", "draining") if each in states), None)
        pool = [replica for replica in self._replicas if replica.state == state]
        now = time.monotonic()
        rested = [each for each in pool if not self._is_backing_off(each, now)]
        return sorted(rested or pool, key=lambda each: _weight(rollout, each.name), reverse=True)

    def _is_backing_off(self, replica: EngineReplica, now: float) -> bool:
        rest = self._backoffs.get(replica.name)
        return rest is not None and rest.not_before > now

    def _pass_over(
        self, replica: EngineReplica, seconds: float | None, problem: HoustonError
    ) -> None:
        """Ask it no more for a while; seconds: None for longer after each failure."""
        log.warning(
            "replica %s of engine %s is not used for a while: %s",
            replica.name,
            self.name,
            problem.cause,
        )
        rest, now = self._backoffs.setdefault(replica.name, Backoff()), time.monotonic()
        rest.fail(now)
        if seconds is not None:
            rest.not_before = now + seconds

    def _down_reason(self, replica: EngineReplica) -> str:
        """Why a replica is down that is asked now; empty where it is not, or no other is there."""
        others = any(each.state == "ready" and each.name != replica.name for each in self._replicas)
        now = next((each for each in self._replicas if each.name == replica.name), None)
        if not others or now is None or now.state != "down":
            return ""
        return now.reason or "it does not answer"

    def _unavailable_message(self) -> str:
        reasons = "; ".join(f"{each.name}: {each.reason}" for each in self._replicas if each.reason)
        count = len(self._replicas)
        return (
            f"none of the {count} replicas of engine {self.name} answers"
            + f" ({reasons})" * bool(reasons)
        )

    def _client(self, replica: EngineReplica) -> Engine:
        place = (replica.name, replica.url)
        if place not in self._clients:
            self._clients[place] = self._make(replica)
        return self._clients[place]

    @contextmanager
    def _count_request(self, rollout: str, replica: EngineReplica) -> Iterator[None]:
        """While it lasts, the replica answers a request of the rollout."""
        counts = self._requests.setdefault(rollout, Counter())
        counts[replica.name] += 1
        try:
            yield
        finally:
            counts[replica.name] -= 1
            if not counts[replica.name]:
                del counts[replica.name]
            if not counts:
                self._requests.pop(rollout, None)


def _routing_key(request: SampleRequest) -> str:
    """What decides the replica: the rollout; for others the prompt, so that samples of one prompt
    share its prefix."""
    if request.rollout:
        return request.rollout
    if request.prompt_ids is not None:
        return ",".join(map(str, request.prompt_ids))
    return "\0".join(message.content for message in request.messages)


def _weight(rollout: str, replica: str) -> bytes:
    """How much a rollout favours a replica: as even as a hash is."""
    return hashlib.blake2b(f"{rollout}\0{replica}".encode(), digest_size=8).digest()


def take_replicas(engine: Engine, control: WorkerControl) -> None:
    """Tell an engine, if it has several servers, what the daemon knows of them."""
    if isinstance(engine, ReplicatedEngine):
        engine.use(control.replicas.get(engine.name, ()))
