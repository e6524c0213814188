"""The real model, every request of which is cut by a death: the next worker sends the same bytes.

Worker and daemon die in turn while a request is at the engine, which never answers it. The request
that follows must be equal to the last byte: prompt ids, grammar, limits, parameters.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from houston_daemon.engines.local_model import model_path
from houston_shared import wire
from tests.faults.daemon_under_test import Ground
from tests.faults.engine_proxy import Tap, free_port, tapped
from tests.integration.agent.test_token_engine import wait_for
from tests.support.reference_ledger import Ledger

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]
STEPS = 6
TASK = f"""
workspace.source = "workspace"
tools = ["think", "list_files", "finish"]
[budget]
steps = {STEPS}
minimum_steps = {STEPS}
answer_tokens = 48
observation_tokens = 256
context_tokens = 600
evaluations = 0
"""


@pytest.fixture
def engine() -> Iterator[str]:
    """URL of an embedded server of its own."""
    port = free_port()
    words = ["-m", "houston_daemon.engines.embedded", "--model", str(model_path())]
    server = subprocess.Popen([sys.executable, *words, "--port", str(port)])
    try:
        wait_for(f"http://127.0.0.1:{port}/health", server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(20)


@pytest.mark.slow
def test_what_is_sent_after_a_death_is_what_was_sent_before(engine: str, tmp_path: Path) -> None:
    with tapped(engine) as tap:
        ground = Ground(
            tmp_path / "ground",
            f"[engines.tapped]\nkind = 'token'\nurl = '{tap.url}'\n"
            f"tokenizer = '{model_path()}/tokenizer.json'\n",
        )
        try:
            deaths = _killed_at_every_request(ground, tap)
        finally:
            ground.close()
    pairs = list(zip(tap.bodies[::2], tap.bodies[1::2], strict=True))
    assert len(pairs) == deaths > STEPS, "a fork was asked for, too"
    for before, after in pairs:
        assert after == before


def _killed_at_every_request(ground: Ground, tap: Tap) -> int:
    ground.started()
    tap.fate = lambda body: "hold" if tap.bodies.count(body) == 1 else "pass"
    folder, _ = ground.task("model", TASK, [])
    (rollout,) = ground.rollouts((folder, "tapped"))
    deaths = 0
    while True:
        ground.until(
            lambda: tap.held.acquire(blocking=False) or ground.states()[rollout] == "finished",
            120,
            "a request, or the end",
        )
        if ground.states()[rollout] == "finished":
            break
        deaths += 1
        if deaths in (2, 3):
            # So long that contexts are forked even where the model says little.
            for text in ("Read README.md first. " * 6, "And keep notes. " * 6):
                ground.ask(wire.Guide(id=f"g{deaths}-{text[0]}", rollout=rollout, text=text))
        if deaths % 2:
            (worker,) = ground.own("agent.rollout_worker --endpoint")
            os.kill(worker, signal.SIGKILL)
        else:
            ground.signal(signal.SIGKILL)
            ground.ended()
            ground.started()
    _told(ground, tap, rollout)
    return deaths


def _told(ground: Ground, tap: Tap, rollout: str) -> None:
    """The journal tells every prompt that was sent, and each begins with the one before."""
    ledger = Ledger(ground.home.path, rollout)
    sent = [json.loads(body)["prompt"] for body in tap.bodies[1::2]]
    assert [ledger.sent(seq) for seq in ledger.samples] == sent
    assert ledger.check() >= 2
    assert len(ledger.policy()) == STEPS
    assert ground.query("SELECT count(*) FROM forks")[0][0] >= 1
    assert ground.query("SELECT count(*) FROM guidance WHERE state = 'delivered'") == [(4,)]
