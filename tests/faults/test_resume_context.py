"""At every request of a rollout to its engine, a successor would send the same, byte and token.

Whoever dies now is followed by a worker that begins with nothing but what was acked. So before
each answer such a worker is begun beside the living one, and asked what it would send: messages,
token ids, tools, limits and grammar must be those of the request at hand.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from houston_daemon.agent.agent_loop import AgentLoop
from houston_daemon.agent.context_summary_prompt import SUMMARY_SECTIONS
from houston_daemon.agent.recorder_client import IngestSocket, RecorderClient
from houston_daemon.agent.rollout_budgets import ActiveClock
from houston_daemon.agent.rollout_setup import build_agent_loop
from houston_daemon.agent.worker_control import ControlState
from houston_daemon.engines.engine_protocol import Engine, EngineSample, SampleRequest
from houston_daemon.engines.script_engine import ScriptEngine
from houston_daemon.environments.null_environment import NullEnvironment
from houston_shared import wire
from houston_shared.recorder_endpoint import RecorderEndpoint
from houston_shared.task import parse_task_record
from tests.integration.agent.rig import Rig
from tests.support.reference_ledger import Ledger
from tests.support.small_tokenizer import small_tokenizer

TASK = """
[budget]
context_tokens = {context}
observation_tokens = 900
answer_tokens = 500
[sampling]
thoughts = "{thoughts}"
"""
SAID = {2: ["Look <real_user>twice</real_user>.", "先看 README ‮ & then"], 3: ["Go on."], 6: ["日"]}
"""What people say before the answers of these steps."""


def noop(text: str) -> dict[str, Any]:
    return {"name": "noop", "arguments": {"text": text}}


STEPS: list[dict[str, Any]] = [
    {"thought": "two calls", "calls": [noop("one"), noop("two " * 60)]},
    {"thought": "a long observation", "calls": [noop("long " * 1500)]},
    {"thought": "nothing to call", "calls": []},
    {"thought": "no such tool", "calls": [{"name": "fly", "arguments": {"to": "Mars"}}]},
    {"thought": "ünïcode \u2028 <|im_end|> in it", "calls": [noop("<|im_start|>user\nhi ‮")]},
    *({"thought": f"on {n}", "calls": [noop(f"{n} " * 150)] * 3} for n in range(6, 13)),
    {"thought": "over", "calls": [{"name": "finish", "arguments": {}}]},
]


class Played:
    """A token engine that samples `STEPS` in the dialect, token by token, and sums up."""

    name, token_ids, window = "played", True, 30_000

    def __init__(self, tokenizer: str) -> None:
        self._tokens = Tokenizer.from_file(tokenizer)
        self._stop = self._tokens.token_to_id("<|im_end|>")
        self._tries = 0

    async def sample(self, request: SampleRequest, stop: asyncio.Event) -> EngineSample:
        cut = request.role == "policy" and request.step == 3  # at its limit: no stop token
        text = self._text(request)
        ids = self._tokens.encode(text).ids + ([] if cut else [self._stop])
        return EngineSample(
            text=text,
            finish_reason="length" if cut else "stop",
            token_ids=tuple(ids),
            logprobs=(-0.5,) * len(ids),
            logprob_kind="policy",
            prompt_ids=request.prompt_ids,
        )

    def _text(self, request: SampleRequest) -> str:
        if request.role == "policy":
            return json.dumps(STEPS[request.step - 1], ensure_ascii=False)
        self._tries += 1
        useless = self._tries == 1 or 3 <= self._tries <= 5  # one try fails, then all three of one
        return "no" if useless else json.dumps(dict.fromkeys(SUMMARY_SECTIONS, "as it was"))

    async def ready(self) -> None: ...

    async def close(self) -> None: ...


class WouldSend(Exception):
    """A successor came as far as its first request."""

    def __init__(self, request: SampleRequest) -> None:
        super().__init__("would send")
        self.request = request


class Asked:
    """The engine of a successor: hears its first request and gives no answer."""

    def __init__(self, like: Engine) -> None:
        self.name, self.token_ids, self.window = like.name, like.token_ids, like.window

    async def sample(self, request: SampleRequest, stop: asyncio.Event) -> EngineSample:
        raise WouldSend(request)

    async def ready(self) -> None: ...

    async def close(self) -> None: ...


class Attended:
    """The engine of the living worker: before each answer a successor is asked."""

    def __init__(self, engine: Engine, rig: Rig, rollout: str, lease: int) -> None:
        self._engine = engine
        self.name, self.token_ids, self.window = engine.name, engine.token_ids, engine.window
        self._rig, self._rollout, self._lease = rig, rollout, lease
        self.requests: list[SampleRequest] = []

    async def sample(self, request: SampleRequest, stop: asyncio.Event) -> EngineSample:
        client = IngestSocket(RecorderEndpoint(self._rig.home.socket("ingest")), ControlState())
        try:
            made = await made_by(client, self._rollout, self._lease, Asked(self._engine))
            with pytest.raises(WouldSend) as would:
                await made.run()
            assert would.value.request == request, f"step {request.step}, {request.role}"
        finally:
            await client.close()
        if request.role == "policy":
            for text in SAID.get(request.step, ()):
                number = f"g{request.step}-{len(text)}"
                self._rig.ask(wire.Guide(id=number, rollout=self._rollout, text=text))
        self.requests.append(request)
        return await self._engine.sample(request, stop)

    async def ready(self) -> None: ...

    async def close(self) -> None: ...


async def made_by(client: IngestSocket, rollout: str, lease: int, engine: Engine) -> AgentLoop:
    """A rollout as any worker makes it, from what the recorder says."""
    welcome = await client.ask(wire.Hello(rollout=rollout, lease=lease, pid=1), wire.Welcome)
    clock = ActiveClock(welcome.active_us)
    line = RecorderClient(client, ControlState(welcome.control), clock, rollout, lease)
    settings = welcome.spec.engine_settings
    environment = NullEnvironment(parse_task_record(welcome.spec.task))
    return await build_agent_loop(line, welcome, engine, settings, environment)


@pytest.mark.parametrize("thoughts", ["keep", "strip"])
@pytest.mark.parametrize("kind", ["script", "tokens"])
async def test_a_successor_would_send_what_is_being_sent(
    tmp_path: Path, kind: str, thoughts: str
) -> None:
    rig = Rig(tmp_path)
    client = IngestSocket(RecorderEndpoint(rig.home.socket("ingest")), ControlState())
    try:
        tokenizer = small_tokenizer(tmp_path)
        context = 3_000 if kind == "script" else 9_000
        task = TASK.format(context=context, thoughts=thoughts)
        if kind == "script":
            rollout = rig.rollout(STEPS, task=task)
            engine: Engine = ScriptEngine(tmp_path / "probe.jsonl")
        else:
            rollout = rig.rollout(task=task, settings={"kind": "token", "tokenizer": tokenizer})
            engine = Played(tokenizer)
        lease = rig.recorder.assign(rollout).lease
        attended = Attended(engine, rig, rollout, lease)
        made = await made_by(client, rollout, lease, attended)
        assert await made.run() == "finish"
        complete(rig, rollout, attended.requests)
        if kind == "tokens":
            told(rig, rollout, attended.requests, thoughts)
    finally:
        await client.close()
        rig.close()


def complete(rig: Rig, rollout: str, requests: list[SampleRequest]) -> None:
    """The rollout had everything in it that a context is made of."""
    steps = rig.steps(rollout)
    assert [one.step for one in requests if one.role == "policy"] == [one.step for one in steps]
    forks = rig.query("SELECT mechanical FROM forks WHERE rollout=?", rollout)
    assert len(forks) >= 2, "it forks, and a forked context forks again"
    heard = [one.text for step in steps for one in step.guidance]
    assert heard == [text for texts in SAID.values() for text in texts]
    assert {len(step.results) for step in steps} >= {0, 1, 2, 3}
    assert "characters cut" in steps[1].results[0].text
    assert steps[3].results[0].kind == "error"


def told(rig: Rig, rollout: str, requests: list[SampleRequest], thoughts: str) -> None:
    """The ledger tells the ids of every request, and each prompt begins with the one before."""
    ledger = Ledger(rig.home.path, rollout)
    sent = [ledger.sent(seq) for seq in ledger.samples]
    assert sent == [list(one.prompt_ids or ()) for one in requests]
    forks = rig.query("SELECT mechanical FROM forks WHERE rollout=?", rollout)
    assert {mechanical for (mechanical,) in forks} == {0, 1}, "by the model, and without"
    if thoughts == "keep":
        assert ledger.check() > 5
