"""An engine of several servers under a real daemon: one dies, hangs, leaves; all are away.

Rollouts go on at the others with the same request, and nothing of it costs a step.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from houston_daemon.engines.engine_process import ServerState
from houston_daemon.service import engine_endpoints
from houston_shared import wire
from houston_shared.control_messages import ReplicaStatus
from tests.faults.daemon_under_test import Ground
from tests.faults.engine_proxy import Tap, free_port
from tests.faults.final_checks import until_over, wrong
from tests.faults.test_resume_engines import PROGRAM, STEPS, TASK, houston, steps
from tests.support.small_tokenizer import small_tokenizer
from tests.support.station import alive
from tests.support.tiers import sampled

REPLICAS = ("pool", "pool#2")


class Pool:
    """A daemon with an engine of two children, which answer nothing while `hold` is there."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = small_tokenizer(folder)
        self._seen = folder / "seen"
        self.hold = self._seen.with_suffix(".hold")
        self.ground = Ground(folder / "ground", self.table(2))
        self.ground.started()
        self.task, _ = self.ground.task("probe", TASK, [])

    def table(self, replicas: int) -> str:
        seen = f"{self._seen}.{{port}}"
        command = [sys.executable, PROGRAM, "{port}", self.tokenizer, seen]
        return (
            f"[engines.pool]\nkind = 'vllm'\ntokenizer = '{self.tokenizer}'\n"
            f"command = {command}\nreplicas = {replicas}\n"
        )

    def child(self, replica: str) -> ServerState:
        file = engine_endpoints.state_file(self.ground.home, replica)
        return msgspec.json.decode(file.read_bytes(), type=ServerState)

    def asked(self, replica: str) -> list[bytes]:
        """Requests that a replica was sent."""
        seen = Path(f"{self._seen}.{self.child(replica).url.rsplit(':')[-1].split('/')[0]}")
        return seen.read_bytes().splitlines() if seen.exists() else []

    def statuses(self) -> dict[str, ReplicaStatus]:
        replicas = self.ground.ask(wire.AskStatus()).replicas.get("pool", ())
        return {replica.name: replica for replica in replicas}

    def both_ready(self) -> None:
        def ready() -> bool:
            return [each.state for each in self.statuses().values()] == ["ready", "ready"]

        self.ground.until(ready, 90, "both replicas are ready")

    def start(self) -> str:
        """Start a rollout and wait for its first request; the replica that has it."""
        before = {name: len(self.asked(name)) if self.started(name) else 0 for name in REPLICAS}
        self.ground.rollouts((self.task, "pool"))

        def home() -> str:
            now = {name: len(self.asked(name)) for name in REPLICAS if self.started(name)}
            return next((name for name, count in now.items() if count > before[name]), "")

        return str(self.ground.until(home, 90, "a request under way"))

    def started(self, replica: str) -> bool:
        return engine_endpoints.state_file(self.ground.home, replica).exists()


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    made = Pool(tmp_path)
    try:
        yield made
    finally:
        made.hold.unlink(missing_ok=True)
        made.ground.close()


def other(replica: str) -> str:
    return next(name for name in REPLICAS if name != replica)


@pytest.mark.parametrize(
    "fault", sampled([signal.SIGKILL, signal.SIGSTOP], 1), ids=["killed", "stalled"]
)
def test_a_replica_is_lost_in_mid_sample(pool: Pool, fault: signal.Signals) -> None:
    pool.hold.touch()
    home = pool.start()
    pool.both_ready()
    child = pool.child(home)
    os.kill(child.pid, fault)
    try:
        pool.ground.until(lambda: pool.asked(other(home)), 120, "the other one is asked")
        sent = pool.asked(home)[0]
        pool.hold.unlink()
        until_over(pool.ground)
    finally:
        if fault == signal.SIGSTOP:
            os.kill(child.pid, signal.SIGCONT)
    assert steps(pool.ground) == list(range(1, STEPS + 1))
    assert pool.asked(other(home))[0] == sent, "the same request, byte for byte"
    assert pool.ground.query("SELECT count(*) FROM samples") == [(STEPS,)], "one step, one sample"
    assert pool.ground.query("SELECT DISTINCT engine FROM samples") == [("pool",)]
    assert pool.ground.states().popitem()[1] == "finished"
    pool.both_ready()
    assert wrong(pool.ground) == []


def test_a_replica_leaves_when_nobody_samples_there(pool: Pool) -> None:
    """`replicas = 1` in houston.toml: what the second one samples is waited for, and nothing is
    asked twice."""
    pool.hold.touch()
    while pool.start() != "pool#2":
        assert len(pool.ground.states()) < 12, "half of all rollouts keep to each"
    pool.both_ready()
    pid = pool.child("pool#2").pid
    file = pool.ground.home.configuration
    text = file.read_text()
    assert pool.table(2) in text
    file.write_text(text.replace(pool.table(2), pool.table(1)))

    def leaves() -> bool:
        status = pool.statuses()["pool#2"]
        return (status.state, status.requests > 0, status.rollouts > 0) == ("draining", True, True)

    pool.ground.until(leaves, 60, "it is draining, and works at a sample")
    assert "pool#2 at 127.0.0.1" in houston(pool.ground, "daemon", "status")
    assert alive(pid)
    pool.hold.unlink()
    until_over(pool.ground)
    pool.ground.until(lambda: not alive(pid), 60, "it has ended")
    assert list(pool.statuses()) == ["pool"]
    count = len(pool.ground.states())
    assert pool.ground.query("SELECT count(*) FROM samples") == [(STEPS * count,)]
    assert wrong(pool.ground) == []


@pytest.mark.slow
def test_all_replicas_are_away_until_one_is_back(tmp_path: Path) -> None:
    ports, tokenizer = (free_port(), free_port(), free_port()), small_tokenizer(tmp_path)
    server = subprocess.Popen([sys.executable, PROGRAM, str(ports[0]), tokenizer])
    engine = f"http://127.0.0.1:{ports[0]}"
    taps = [Tap(engine, port) for port in ports[1:]]
    urls = [tap.url for tap in taps]
    ground = Ground(
        tmp_path / "ground",
        f"[engines.far]\nkind = 'token'\nurls = {urls}\ntokenizer = '{tokenizer}'\n",
    )
    ground.environment["HOUSTON__DAEMON__ENGINE_PATIENCE_SECONDS"] = "0.5"
    try:
        ground.started()
        folder, _ = ground.task("away", TASK, [])
        for tap in taps:
            tap.fate = lambda body: "hold" if sum(len(each.bodies) for each in taps) > 2 else "pass"
        ground.rollouts((folder, "far"))
        ground.until(lambda: sum(len(tap.bodies) for tap in taps) > 2, 60, "a request under way")
        for tap in taps:
            tap.close()

        def paused() -> bool:
            return ground.query("SELECT state, paused_by FROM rollouts") == [("paused", "engine")]

        ground.until(paused, 90, "it is paused by its engine")
        ((reason,),) = ground.query("SELECT reason FROM rollouts")
        assert "none of 2 replicas answers" in reason
        assert all(f"127.0.0.1:{port} cannot be reached" in reason for port in ports[1:])
        asked = next(tap.bodies[-1] for tap in taps if tap.bodies)
        before = steps(ground)
        taps[1] = Tap(engine, ports[2])
        until_over(ground)
        assert before == [1, 2]
        assert taps[1].bodies[0] == asked, "the request that was never answered, byte for byte"
        assert steps(ground) == list(range(1, STEPS + 1))
        status = ground.ask(wire.AskStatus())
        assert status.engines["far"] == "ready"
        assert [each.state.split(":")[0] for each in status.replicas["far"]] == ["down", "ready"]
        assert wrong(ground) == []
    finally:
        taps[1].close()
        ground.close()
        server.terminate()
        server.wait(20)
