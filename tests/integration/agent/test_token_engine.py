"""A rollout by the real model: killed twice, guided and forked, and every prompt still told."""

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import pytest

from houston_daemon.engines.local_model import model_path
from houston_shared import wire
from tests.integration.agent.rig import Cut, Rig
from tests.support.reference_ledger import Ledger

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]
TASK = """
[budget]
steps = 13
minimum_steps = 13
answer_tokens = 96
sleep_seconds = 1
command_seconds = 1
context_tokens = 1400
evaluations = 0
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    """URL of an embedded server of its own."""
    model = model_path()
    assert model, "make test fetches the model"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["-m", "houston_daemon.engines.embedded", "--model", str(model), "--port", str(port)]
    server = subprocess.Popen([sys.executable, *words])
    try:
        wait_for(f"http://127.0.0.1:{port}/health", server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(20)


def wait_for(url: str, server: "subprocess.Popen[bytes]") -> None:
    for _ in range(600):
        assert server.poll() is None, "the server runs"
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError("the server never answered")


@pytest.mark.slow
def test_killed_guided_and_forked_every_prompt_is_told(rig: Rig, engine: str) -> None:
    settings = {"kind": "embedded", "url": engine}
    rollout = rig.rollout(settings=settings, environment="workstation", task=TASK)
    for at, text in ((2, "Keep notes in notes.md."), (4, "Read README.md first.")):
        rig.ask(wire.Guide(id=f"g{at}", rollout=rollout, text=text))
        cut = Cut(rig, at, "after")
        worker = rig.work(rollout, cut.endpoint)
        assert cut.reached.wait(240)
        rig.kill(worker, rollout)
        cut.close()
    rig.run(rollout, 500)
    state, reason = rig.state(rollout)
    assert (state, reason in ("finish", "budget: steps")) == ("finished", True), reason
    steps = rig.steps(rollout)
    assert [step.step for step in steps] == list(range(1, 14))
    ledger = Ledger(rig.home.path, rollout)
    ledger.check()
    forks = rig.query("SELECT step, k, sample_seq FROM forks WHERE rollout=?", rollout)
    assert forks, "the context passed its budget"
    assert forks[0][1] >= (forks[0][0] - 1) // 2
    heard = [one.text for step in steps for one in step.guidance]
    assert sorted(heard) == ["Keep notes in notes.md.", "Read README.md first."]
    last = ledger.decode(ledger.prompt(13))
    for text in heard:
        assert last.count(f"<real_user>{text}</real_user>") == 1, "verbatim through forks"
    for step, k, seq in forks:
        if seq is not None:
            assert ledger.samples[seq].role == "summary"
            assert ledger.sent(seq)[: len(ledger.head.token_ids or ())] == list(
                ledger.head.token_ids or ()
            )
        assert ledger.prompt(step) != ledger.prompt(step - 1)
        assert k >= 1
