"""However much people say, and however small the window: the rollout goes on, and says what it cut.

The worker runs in the test's own process, with a script engine that has a window like a model's.
"""

import asyncio
from typing import Any

import pytest

from houston_daemon.agent.recorder_client import IngestSocket, RecorderClient
from houston_daemon.agent.rollout_budgets import ActiveClock
from houston_daemon.agent.rollout_setup import build_agent_loop
from houston_daemon.agent.worker_control import ControlState, WorkerExit
from houston_daemon.engines.engine_protocol import EngineSample, SampleRequest
from houston_daemon.engines.script_engine import ScriptEngine
from houston_daemon.environments.null_environment import NullEnvironment
from houston_daemon.prompts.model_dialects import ChatmlJsonDialect
from houston_daemon.prompts.prompt_renderer import PromptRenderer
from houston_shared import wire
from houston_shared.recorder_endpoint import RecorderEndpoint
from houston_shared.records import Message
from houston_shared.store.step_context import read_context
from houston_shared.store.store_reader import Reader
from houston_shared.task import parse_task_record
from tests.integration.agent.rig import Rig
from tests.support.tiers import sampled

CUT = "do not fit this model's window"
STEPS = 14
LONG = "Please mind this. " * 1_700
ODD = "\U0001f600" * 7_000
"""Text of which a tokenizer may make more tokens than a third of its bytes."""


class Windowed(ScriptEngine):
    """A script with a window, in which people speak while it samples; keeps what it was sent."""

    def __init__(self, rig: Rig, rollout: str, path: Any, window: int, said: dict[int, list[str]]):
        super().__init__(path)
        self.window = window
        self.sent: dict[int, list[Message]] = {}
        self._rig, self._rollout, self._said = rig, rollout, said
        self.leaves: int | None = None
        """The step before which the worker is told to go."""

    async def sample(self, request: SampleRequest, stop: asyncio.Event) -> EngineSample:
        step = request.step or 0
        if self.leaves is not None and step >= self.leaves:
            raise WorkerExit("drain")
        renderer = PromptRenderer(ChatmlJsonDialect(), None, "keep")
        assert renderer.estimate_tokens(request.messages) + request.max_tokens <= (self.window or 0)
        if request.role == "policy":
            self.sent[step] = list(request.messages)
            for number, text in enumerate(self._said.get(step, [])):
                guide = wire.Guide(id=f"g-{step}-{number}", rollout=self._rollout, text=text)
                await asyncio.to_thread(self._rig.ask, guide)
        return await super().sample(request, stop)


SAID = {
    "one of 30 KB": {2: [LONG]},
    "one of 30 KB at the first step": {1: [LONG]},
    "one of 28 KB in characters of four bytes": {2: [ODD]},
    "several": {3: [LONG, "Be quick.", LONG], 4: [LONG]},
    "one at every step": {n: [f"{n}: {LONG}"] for n in range(1, STEPS + 1)},
    "many small ones": {n: [f"Remember {n}.{m}."[:40] for m in range(40)] for n in range(9)},
}
WINDOWS = [(name, window) for name in SAID for window in (2_048, 8_192, 32_768)]


@pytest.mark.parametrize("case", sampled(WINDOWS, 5))
async def test_words_never_end_a_rollout(rig: Rig, case: tuple[str, int]) -> None:
    name, window = case
    said = SAID[name]
    line = {"thought": "on", "calls": [{"name": "noop", "arguments": {"text": "x " * 400}}]}
    rollout = rig.rollout([line] * STEPS, task="[budget]\nanswer_tokens = 256\n")
    engine = Windowed(rig, rollout, rig.folder / "probe.jsonl", window, said)
    reason = await run(rig, rollout, engine)
    assert reason == "finish", name
    heard = [one.text for step in rig.steps(rollout) for one in step.guidance]
    assert heard == [text for _, texts in sorted(said.items()) if _ for text in texts], "all of it"
    last = "\n".join(one.content for one in engine.sent[STEPS + 1])
    newest = heard[-1]
    assert f"<real_user>{newest[:17]}" in last, "the newest word is always there"
    if window == 2_048 or (window == 8_192 and len(heard) > 1) or name == "one at every step":
        assert CUT in last, "a cut is declared"
    with Reader(rig.home) as reader:
        for step, sent in engine.sent.items():
            assert read_context(reader, rollout, step).messages == sent, "as every reader sees it"
    if window > 2_048 and name != "one at every step":
        forks = rig.query("SELECT step FROM forks WHERE rollout=?", rollout)
        assert len(forks) < STEPS / 2, "words do not make it fork at each step"


async def test_a_worker_that_comes_later_shows_the_same_cuts(rig: Rig) -> None:
    said = {2: [LONG, "Be quick."], 6: [ODD, LONG], 9: ["And tidy."]}
    line = {"thought": "on", "calls": [{"name": "noop", "arguments": {"text": "x " * 400}}]}
    rollout = rig.rollout([line] * STEPS, task="[budget]\nanswer_tokens = 256\n")
    sent: dict[int, list[Message]] = {}
    for leaves in (*range(2, STEPS + 1), None):
        engine = Windowed(rig, rollout, rig.folder / "probe.jsonl", 4_096, said)
        engine.leaves = leaves
        if leaves is None:
            assert await run(rig, rollout, engine) == "finish"
        else:
            with pytest.raises(WorkerExit):
                await run(rig, rollout, engine)
        sent |= engine.sent
    assert sorted(sent) == list(range(1, STEPS + 2))
    assert any(CUT in one.content for one in sent[STEPS + 1])
    with Reader(rig.home) as reader:
        for step, messages in sent.items():
            assert read_context(reader, rollout, step).messages == messages


async def run(rig: Rig, rollout: str, engine: ScriptEngine) -> str:
    """Run a rollout here with a given engine; why it ended."""
    client = IngestSocket(RecorderEndpoint(rig.home.socket("ingest")), control := ControlState())
    try:
        assignment = rig.recorder.assign(rollout)
        hello = wire.Hello(rollout=rollout, lease=assignment.lease, pid=1)
        welcome = await client.ask(hello, wire.Welcome)
        clock = ActiveClock(welcome.active_us)
        line = RecorderClient(client, control, clock, rollout, assignment.lease)
        environment = NullEnvironment(parse_task_record(welcome.spec.task))
        settings = welcome.spec.engine_settings
        return await (await build_agent_loop(line, welcome, engine, settings, environment)).run()
    finally:
        await client.close()
