"""Leases: a worker that was stopped, hung or cut off never acts beside its successor.

The station's supervisor starts a successor only when the process before it has ended. The first
table does what it never does, as a worker on another machine could see it: both live at once.
"""

import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from houston_daemon.agent import agent_loop, call_execution, recorder_client, rollout_worker
from houston_shared import wire
from tests.faults import injection, workloads
from tests.faults.daemon_under_test import Ground
from tests.faults.final_checks import until_over, wrong
from tests.integration.agent.rig import Rig, Wire
from tests.support.station import alive, process_state
from tests.support.tiers import sampled

SCRIPT = [
    {
        "thought": f"t{n}",
        "delay": 0.25,
        "calls": [
            workloads.call("run_command", command=f"echo {n} >> log.txt"),
            workloads.call("create_file", filename=f"file-{n}.txt", content=f"{n}\n"),
        ],
    }
    for n in range(1, 5)
]
STOPS = [
    ("worker.sample.asked", 3),
    ("worker.sample.after", 3),
    ("worker.intent.before", 3),
    ("worker.intent.after", 3),
    ("worker.intent.after", 4),
    ("worker.call.after", 3),
    ("worker.call.after", 4),
    ("worker.result.after", 3),
    ("worker.snapshot.before", 3),
    ("worker.observation.before", 3),
    ("worker.observation.after", 3),
    ("worker.beat.before", 2),
]
"""Where a worker is stopped, the how-manieth time that it comes by: odd ones are about to run a
command or have, even ones to write a file."""
Name = TypeVar("Name")


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("leases"))
    yield made
    made.close()


def stopped(arguments: list[str], order: str) -> None:
    """A worker that stops itself where `order` says."""
    there = injection.ProcessFaults(injection.parse_fault_orders(order))
    for module in (call_execution, recorder_client, agent_loop, rollout_worker):
        module.point = there
    rollout_worker.main(arguments)


@dataclass
class Told:
    """What there was when the successor had ended, and when the first worker had."""

    rollout: str
    first: Any
    lines: list[str]
    events: list[tuple[Any, ...]]
    alone: bool = False
    """Whether the first worker still lived when its successor had ended."""
    code: int | None = None
    later_lines: list[str] = field(default_factory=list)
    later_events: list[tuple[Any, ...]] = field(default_factory=list)

    def end(self, rig: Rig) -> None:
        self.first.join(30)
        self.code = self.first.exitcode
        self.later_lines, self.later_events = done(rig, self.rollout), under(rig, self.rollout)

    def check(self) -> None:
        assert self.alone, "both lived at once"
        assert self.code == 0, "the first is told to end, and ends"
        assert self.later_events == self.events, "nothing that it says is stored"
        assert self.later_lines == self.lines, "and it does nothing"
        assert len(self.lines) == len(set(self.lines)), "no command ran twice"
        assert len(self.lines) >= 2 * len(SCRIPT) - 1, "one outcome may be unknown"


def done(rig: Rig, rollout: str) -> list[str]:
    """What a rollout has done: lines that its commands wrote, and the files that it made."""
    there = rig.folder / f"host/rollouts/{rollout}/workspace"
    return (there / "log.txt").read_text().split() + sorted(
        f"{file.name} of {file.stat().st_mtime_ns}" for file in there.glob("file-*")
    )


def under(rig: Rig, rollout: str) -> list[tuple[Any, ...]]:
    """What was stored of a rollout, in order."""
    return rig.query(
        "SELECT seq, kind, step, part FROM events WHERE rollout=? ORDER BY seq", rollout
    )


def taken_over(rig: Rig, firsts: dict[Name, tuple[str, Any]]) -> dict[Name, Told]:
    """Successors come and go while the first workers are away."""
    successors = [rig.work(rollout) for rollout, _ in firsts.values()]
    for one in successors:
        one.join(60)
    told = {}
    for name, (rollout, first) in firsts.items():
        assert rig.state(rollout) == ("finished", "finish")
        seen = done(rig, rollout), under(rig, rollout)
        told[name] = Told(rollout, first, *seen, first.is_alive())
    return told


@pytest.fixture(scope="module")
def after_a_stop(rig: Rig) -> dict[tuple[str, int], Told]:
    """Twelve workers, each stopped somewhere else, that go on when their successors have ended."""
    firsts = {}
    for at, times in STOPS:
        name = f"{at}-{times}".replace(".", "-")
        rollout = rig.rollout(SCRIPT, environment="workstation", name=name)
        firsts[at, times] = (rollout, rig.start(stopped, rollout, f"{at}=stop@{times}"))
    for at, (_, first) in firsts.items():
        rig.until(lambda one=first: process_state(one.pid) == "T", why=f"it stops at {at}")
    told = taken_over(rig, firsts)
    time.sleep(3.2)  # a worker believes in its lease for three seconds
    for one in told.values():
        os.kill(one.first.pid, signal.SIGCONT)
    for one in told.values():
        one.end(rig)
    return told


@pytest.mark.slow
@pytest.mark.parametrize(("at", "times"), STOPS)
def test_a_stopped_worker_that_goes_on_beside_its_successor_does_nothing(
    after_a_stop: dict[tuple[str, int], Told], at: str, times: int
) -> None:
    after_a_stop[at, times].check()


def impatient(arguments: list[str]) -> None:
    """A worker that says again after a second what was not answered, not after ten."""
    recorder_client.RESEND_AFTER_SECONDS = 1.0
    rollout_worker.main(arguments)


class Silenced(Wire):
    """Passes nothing of a rollout's worker from its third message of a kind on, until healed."""

    def __init__(self, rig: Rig, kind: str, lost: str) -> None:
        self.left = 3
        self.cut = False
        self._kind, self._lost = kind, lost
        super().__init__(rig, f"silenced-{kind}-{lost}")

    def asks(self, number: bytes, body: bytes) -> bool:
        if self.left and type(wire.ingest_request_decoder.decode(body)).__name__ == self._kind:
            self.left -= 1
            self.cut = not self.left
            return not self.cut or self._lost == "answer"
        return not self.cut

    def answers(self, number: bytes) -> bool:
        return not self.cut


BEGUN = {
    "StoreSample": (2, 2),
    "StoreIntent": (1, 1),
    "StoreResult": (2, 1),
    "StoreObservation": (3, 3),
}
"""Commands and files that were begun when the third message of a kind was never answered."""
CUTS = [(kind, lost) for kind in BEGUN for lost in ("message", "answer")]


@pytest.fixture(scope="module")
def after_a_cut(rig: Rig) -> dict[tuple[str, str], Told]:
    """Eight workers, each cut off at another message, heard again when it is too late."""
    cuts = {}
    for kind, lost in CUTS:
        rollout = rig.rollout(SCRIPT, environment="workstation", name=f"{kind}-{lost}".lower())
        line = Silenced(rig, kind, lost)
        first = rig.start(impatient, rollout, endpoint=line.endpoint)
        cuts[kind, lost] = (line, rollout, first)
    for line, *_ in cuts.values():
        rig.until(lambda one=line: one.cut, why="it is cut off")
    time.sleep(0.5)
    for (kind, _), (_, rollout, _) in cuts.items():
        names = [one.split(" of ")[0] for one in done(rig, rollout)]
        commands, files = BEGUN[kind]
        expected = [str(n) for n in range(1, commands + 1)]
        expected += [f"file-{n}.txt" for n in range(1, files + 1)]
        assert names == expected, f"only what was acked before {kind}"
    told = taken_over(rig, {name: (one[1], one[2]) for name, one in cuts.items()})
    for line, *_ in cuts.values():
        line.cut = False
    for name, one in told.items():
        one.end(rig)
        cuts[name][0].close()
    return told


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "lost"), CUTS)
def test_a_worker_that_is_cut_off_does_not_act_and_ends_when_it_is_heard_again(
    after_a_cut: dict[tuple[str, str], Told], kind: str, lost: str
) -> None:
    after_a_cut[kind, lost].check()


# --- the station notices -------------------------------------------------------------------------


SILENT = 5
"""Seconds after which a worker is silent; each beats every second, on a full machine less often."""


def patient(ground: Ground, seconds: float) -> None:
    ground.environment["HOUSTON__DAEMON__SILENT_SECONDS"] = str(seconds)
    ground.started()


def worker_of(ground: Ground) -> int:
    (pid,) = ground.until(lambda: ground.own("agent.rollout_worker --endpoint"), 60, "a worker")
    return pid


@pytest.mark.parametrize("how", sampled(["stopped", "hung"], 1))
def test_a_silent_worker_is_shown_killed_and_replaced(ground: Ground, how: str) -> None:
    patient(ground, SILENT)
    steps = 8
    (rollout,) = ground.rollouts(workloads.workstation(ground, steps, 0.1))
    ground.until(lambda: ground.query("SELECT 1 FROM steps WHERE step = 3"), 60, "three steps")
    if how == "stopped":
        pid = worker_of(ground)
        os.kill(pid, signal.SIGSTOP)
    else:
        ground.order("worker.result.after", "delay=3600")
        ((_, _, pid),) = ground.until(ground.fired, 60, "a worker hangs")
    ((lease,),) = ground.query("SELECT lease FROM rollouts")

    def trouble() -> str:
        status = ground.ask(wire.AskStatus())
        return str(status.troubles.get(f"worker of {rollout}", ""))

    said = ground.until(trouble, 60, "the status shows it")
    # Whoever looks late reads what came of it.
    shown = rf"silent for \d+ s(; ended after {SILENT} s|; killed| and was killed)"
    assert re.search(shown, said), said
    ground.until(lambda: not alive(pid), 60, "it is killed")
    until_over(ground)
    log = (ground.home.logs / "daemon.log").read_text()
    assert f"worker of {rollout} (pid {pid}, lease {lease}) has been silent for" in log
    assert "was killed" in log, "and its death says why"
    ((last,),) = ground.query("SELECT lease FROM rollouts")
    assert last > lease, "it has a successor"
    # A worker that the machine starves is silent, too: each death has one successor.
    assert ground.ask(wire.AskStatus()).restarts["workers"] == last - 1
    said = (ground.folder / f"host/rollouts/{rollout}/workspace/log.txt").read_text()
    assert len(set(said.split())) == len(said.split()) >= steps - (last - 1), "one may be unknown"
    assert wrong(ground) == []


@pytest.mark.slow
def test_no_worker_is_blamed_for_a_daemon_that_was_stopped(ground: Ground) -> None:
    patient(ground, 6)  # a worker beats every second, on a crowded machine less often
    ground.rollouts(workloads.null(ground, 15, 0.2), 3)
    ground.until(lambda: ground.query("SELECT 1 FROM steps WHERE step = 2"), 60, "two steps")
    ground.signal(signal.SIGSTOP)
    time.sleep(8)
    ground.signal(signal.SIGCONT)
    until_over(ground)
    assert ground.query("SELECT DISTINCT lease FROM rollouts") == [(1,)]
    assert "silent" not in (ground.home.logs / "daemon.log").read_text()


@pytest.mark.slow
def test_a_worker_is_not_charged_for_the_time_in_which_it_was_stopped(ground: Ground) -> None:
    ground.started()
    began = time.monotonic()
    ground.rollouts(workloads.null(ground, 10, 0.2))
    ground.until(lambda: ground.query("SELECT 1 FROM steps WHERE step = 2"), 60, "two steps")
    pid = worker_of(ground)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(3)
    os.kill(pid, signal.SIGCONT)
    until_over(ground)
    ((lease, active),) = ground.query("SELECT lease, active_us FROM rollouts")
    assert lease == 1, "it was not silent for too long"
    assert 1.5e6 < active <= (time.monotonic() - began - 2.5) * 1e6
