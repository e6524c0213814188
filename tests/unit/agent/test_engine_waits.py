"""How a rollout waits for its engine, which refuses, is away, or first one and then the other."""

import asyncio
import time
from collections.abc import Collection
from typing import Any

import pytest

from houston_daemon.agent import rollout_setup
from houston_daemon.agent.recorder_client import RecorderClient
from houston_daemon.agent.rollout_budgets import ActiveClock
from houston_daemon.agent.sample_requests import ENGINE_AWAY_WAITS, PolicySampler
from houston_daemon.agent.worker_control import ControlState
from houston_daemon.engines.chat_engine import ChatEngine
from houston_daemon.engines.engine_protocol import (
    EngineRefused,
    EngineSample,
    EngineUnavailable,
    SampleRequest,
)
from houston_shared.errors import HoustonError
from houston_shared.wire import WorkerControl
from tests.integration.agent.endpoint import Answer, Endpoint, Page, says

REFUSED, AWAY = EngineRefused("Wrong key.", status=401), EngineUnavailable("It does not answer.")
LAST = ENGINE_AWAY_WAITS[-1]
BUSY_SECONDS = 0.3


class TimedControl(ControlState):
    """Waits are over at once, and what they would have taken has passed."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.waits: list[float] = []

    async def wait(self, tasks: Collection[asyncio.Task[Any]], seconds: float | None) -> None:
        if seconds is None:
            return await super().wait(tasks, None)
        self.waits.append(seconds)
        self.now += seconds


class Line(RecorderClient):
    """Pauses as the recorder would; a person resumes each pause in the next moment."""

    def __init__(self) -> None:
        self.timed = TimedControl()
        clock = ActiveClock(0, lambda: int(self.timed.now * 1e9))
        nobody: Any = None
        super().__init__(nobody, self.timed, clock, "r", 1)
        self.states: list[str] = []

    async def store(self, kind: type[Any], **fields: Any) -> Any:
        self.states.append(fields["state"])
        if fields["state"] == "paused":
            self.control.update(WorkerControl(pause=True))
            asyncio.get_running_loop().call_later(0.01, self.control.update, WorkerControl())


class Engine:
    """Says no so often, and then yes."""

    name, token_ids, window = "far", False, None

    def __init__(self, problems: list[HoustonError]) -> None:
        self.problems = list(problems)

    async def ready(self) -> None:
        if self.problems:
            raise self.problems.pop(0)

    async def sample(self, request: SampleRequest, stop: asyncio.Event) -> EngineSample:
        await self.ready()
        return EngineSample("yes", "stop")

    async def close(self) -> None:
        pass


CASES: dict[str, tuple[list[HoustonError], list[str], int]] = {
    "away": ([AWAY] * 10, [], 10),
    "refused": ([REFUSED] * 2, ["paused", "paused", "running"], 0),
    "refused and then away": ([REFUSED] + [AWAY] * 10, ["paused", "running"], 10),
}
"""What the engine says, what is stored, and how often it is waited for as one that is away."""


def check(line: Line, states: list[str], waits: int) -> None:
    assert line.states == states
    assert len(line.timed.waits) == waits
    assert line.timed.waits == sorted(line.timed.waits)
    assert waits == 0 or (line.timed.waits[0] < LAST and line.timed.waits[-1] == LAST)
    assert line.clock.microseconds() == 0, "waiting is no active time"


@pytest.mark.parametrize("case", CASES)
async def test_a_sample_waits(case: str) -> None:
    problems, states, waits = CASES[case]
    line, engine = Line(), Engine(problems)
    request = SampleRequest(None, (), (), 10)
    sampled = await PolicySampler(engine, line).sample(request)
    assert sampled.text == "yes"
    check(line, states, waits)


async def test_waits_between_tries_are_no_active_time() -> None:
    """What a real engine tries again by itself, while its server is busy."""
    asked: list[int] = []

    def decide(body: Any) -> Answer:
        asked.append(1)
        busy = Page("", 503, {"retry-after": f"{BUSY_SECONDS}"})
        return busy if len(asked) <= 3 else says("yes")

    endpoint = Endpoint(decide)
    engine, line = ChatEngine("far", endpoint.url, "m"), Line()
    line.clock = ActiveClock(0)
    started = time.monotonic()
    sampled = await PolicySampler(engine, line).sample(SampleRequest(None, (), (), 10))
    passed, active = time.monotonic() - started, line.clock.seconds
    await engine.close()
    endpoint.close()
    assert (sampled.text, len(asked)) == ("yes", 4)
    assert line.timed.waits == [], "the engine waited by itself"
    assert active < passed - 2 * BUSY_SECONDS


@pytest.mark.parametrize("case", CASES)
async def test_the_start_of_a_rollout_waits(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    problems, states, waits = CASES[case]
    line, engine = Line(), Engine(problems)
    monkeypatch.setattr(rollout_setup, "make_rollout_engine", lambda *_: (engine, {}))
    spec: Any = type("Spec", (), {"engine": "far"})
    assert await rollout_setup.wait_for_engine(spec, "", line) == (engine, {})
    check(line, states, waits)
