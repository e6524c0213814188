"""One home that is killed over and over while rollouts run and people speak, then held to account.

A segment is given points in an order; each is made to be reached, and whoever reaches it dies.
Between and after, everything goes on by itself. `Result` says what was done and what was found.
"""

import contextlib
import os
import random
import re
import secrets
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from houston_daemon.maintenance.home_verification import verify_home
from houston_daemon.service.worker_pool import WORKER_DEATHS_LIMIT
from houston_shared import wire
from tests.faults import spared, workloads
from tests.faults.daemon_under_test import ORPHAN_SECONDS, Ground, Speaker, history
from tests.faults.fault_triggers import ONCE, WHEN, Means
from tests.faults.history import check
from tests.faults.stored import stored
from tests.support.station import alive, command_line

WORKERS = "agent.rollout_worker --endpoint"
"""In the command line of every worker and of nothing else."""
REACHED_SECONDS = 60.0
"""What is not reached within this time was missed; on a full machine a worker takes long."""

RANDOM = ("daemon at random", "worker at random", "engine at random")
"""Deaths without a point."""
FAULTS = {
    "a writer that fails": ("recorder.commit.before", "raise"),
    "no space for a commit": ("recorder.commit.before", "enospc"),
    "no space for a blob": ("recorder.blob.written", "enospc"),
    "a slow disk": ("recorder.commit.before", "delay=0.4"),
    "a clock set forward": ("recorder.batch.before", "clock=4000"),
    "a clock set back": ("recorder.batch.before", "clock=-9000"),
}
"""What else goes wrong: (point, fault)."""
STOPPED = "a worker stopped for a moment"
OTHER = (*FAULTS, STOPPED)
"""Everything that is no death by a signal."""


@dataclass(slots=True)
class Result:
    """What a segment did and found; sums up over segments."""

    kills: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    """Other faults: what was full, slow, stopped or set."""
    counts: Counter[str] = field(default_factory=Counter)
    """Acked messages, guidance, prompts, events, rollouts."""
    findings: list[str] = field(default_factory=list)
    ready_seconds: list[float] = field(default_factory=list)
    """From each start of the daemon to ready."""
    gone_seconds: list[float] = field(default_factory=list)
    """From each end of the daemon to that of its last process."""

    def json(self) -> dict[str, Any]:
        """As a line of the state file."""
        counted = {
            "kills": self.kills,
            "missed": self.missed,
            "others": self.others,
            "counts": self.counts,
        }
        plain = {name: dict(counter) for name, counter in counted.items()}
        seconds = {"ready_seconds": self.ready_seconds, "gone_seconds": self.gone_seconds}
        return {**plain, **seconds, "findings": self.findings}


class Segment:
    """A ground with its load."""

    def __init__(
        self, folder: Path, dice: random.Random, cheap: int = 3, stations: int = 1
    ) -> None:
        self.ground = Ground(folder)
        self.ground.environment |= spared.made(folder / "deaths")
        self._deaths = spared.Deaths(folder / "deaths")
        assert spared.SHARE + 2 <= WORKER_DEATHS_LIMIT
        self.result = Result()
        self._dice = dice
        self._wanted = {"null": cheap, "station": stations}
        self._tasks = {
            "null": workloads.null(self.ground),
            "station": workloads.workstation(self.ground),
            "tokens": workloads.tokens(self.ground),
            "failing": workloads.failing(self.ground),
            "planned": workloads.planned(self.ground),
        }
        self._speakers = [Speaker(self.ground, name) for name in ("ann", "ben")]
        self._cancelled: set[str] = set()
        self._terminals_killed = False

    def begin(self) -> None:
        """Start the daemon, rollouts and people."""
        self.ground.started()
        self.keep()
        for speaker in self._speakers:
            speaker.start()

    def keep(self) -> None:
        """As many rollouts run as are wanted."""
        states = self.ground.states()
        live = [rollout for rollout, state in states.items() if state in ("queued", "running")]
        for kind, wanted in self._wanted.items():
            missing = wanted - sum(rollout.startswith(kind) for rollout in live)
            if missing > 0:
                live += self.ground.rollouts(self._tasks[kind], missing)
        for speaker in self._speakers:
            speaker.rollouts = live

    # --- one death --------------------------------------------------------------------------------

    def kill_at(self, point: str, fault: str = "kill") -> bool:
        """Have whoever reaches `point` die; whether it was reached."""
        before = len(self.ground.fired())
        when = WHEN.get(point)
        once = when or point.split(".")[1] in ONCE
        times = 1 if once else self._dice.randint(1, 4)
        self._terminals_killed |= point.startswith("worker.terminal")
        if when is Means.LOST:
            self.ground.order("worker.intent.after", "kill")
        if when is Means.FULL:
            self.ground.order("recorder.commit.before", "enospc@2")
        self.ground.order(point, f"{fault}@{times}")
        self._bring_about(when)
        reached = self._until_reached(point, before)
        if reached and reached == self.ground.pid:
            self._after_death()
        for order in self.ground.orders.iterdir():
            if order.name != "fired":
                order.unlink(missing_ok=True)
        (self.result.kills if reached else self.result.missed)[point] += 1
        return bool(reached)

    def random(self, kind: str) -> None:
        """A death that no point names."""
        time.sleep(self._dice.uniform(0.05, 0.5))
        if kind == "daemon at random":
            self.ground.signal(signal.SIGKILL)
            self._after_death()
        else:
            word = "engine.py" if kind == "engine at random" else WORKERS
            self._signal_first(word)
        self.result.kills[kind] += 1

    def disturb(self, kind: str) -> None:
        """Something that is no death by a signal."""
        before = len(self.ground.fired())
        if kind == STOPPED:
            pid = self._signal_first(WORKERS, signal.SIGSTOP)
            time.sleep(self._dice.uniform(0.1, 1.5))
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        else:
            point, fault = FAULTS[kind]
            self.ground.order(point, f"{fault}@{self._dice.randint(1, 4)}")
            self._until_reached(point, before)
            if fault == "raise":
                self._after_death()
        self.result.others[kind] += 1

    def _bring_about(self, when: Means | None) -> None:
        ground = self.ground
        match when:
            case Means.START:
                (ground.home.path / "ballast").unlink(missing_ok=True)
                ground.signal(signal.SIGKILL)
                ground.ended()
            case Means.STOP:
                ground.until(lambda: self._processes(WORKERS), 60, "workers to drain")
                ground.signal(signal.SIGTERM)
            case Means.BEGIN:
                ground.rollouts(self._tasks["null"])
            case Means.OPEN:
                ground.rollouts(self._tasks["station"])
            case Means.BRANCH:
                self._branch()
            case Means.WORKER:
                self._end_one(WORKERS)
            case Means.FORK_SERVER:
                self._end_one("service.fork_server")
            case Means.PAUSE:
                self._pause_and_resume()
            case Means.CANCEL:
                self._cancel_paused()
            case Means.LATE:
                self._end_one(WORKERS, signal.SIGSTOP)
                ground.signal(signal.SIGTERM)
            case Means.CROWD:
                self._crowd()
            case Means.TOKENS:
                for pid in self._processes("engine.py"):
                    os.kill(pid, signal.SIGKILL)
                ground.rollouts(self._tasks["tokens"])
            case Means.FAILING:
                ground.rollouts(self._tasks["failing"])
            case Means.PLANNED:
                ground.rollouts(self._tasks["planned"])

    def _until_reached(self, point: str, before: int) -> int:
        """Process id of whoever reached it; 0 when nobody did."""
        end = time.monotonic() + REACHED_SECONDS
        kept = time.monotonic()
        while time.monotonic() < end:
            for name, _, pid in self.ground.fired()[before:]:
                if name == point:
                    return pid
            if not self.ground.lives:
                self._after_death()
            if time.monotonic() - kept > 0.5:
                kept = time.monotonic()
                self.keep()
            time.sleep(0.01)
        return 0

    def _after_death(self) -> None:
        """The daemon dies now; what it left ends too, and the next one starts."""
        self.ground.ended()
        self.ground.started()
        self.keep()

    def _processes(self, word: str) -> list[int]:
        return self.ground.own(word)

    def _end_one(self, word: str, number: signal.Signals = signal.SIGKILL) -> None:
        # The daemon may have come to the point by itself and died: nobody is left to end then.
        self.ground.until(
            lambda: self._mortal(word) or not self.ground.lives, 60, f"a process of {word}"
        )
        self._signal_first(word, number)

    def _signal_first(self, word: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Signal the first process that still lives; its pid, 0 where there is none."""
        for pid, rollout in self._mortal(word):
            if rollout and number == signal.SIGKILL:
                self._deaths.add(rollout)
            try:
                os.kill(pid, number)
            except ProcessLookupError:  # it ended by itself since
                continue
            return pid
        return 0

    def _mortal(self, word: str) -> list[tuple[int, str]]:
        """(pid, rollout if it is a worker) of processes whose death is no rollout's end."""
        found = []
        for pid in self._processes(word):
            rollout = spared.rollout_in(command_line(Path(f"/proc/{pid}")).split())
            if not (rollout and self._deaths.had_its_share(rollout)):
                found.append((pid, rollout))
        return found

    def _pause_and_resume(self) -> None:
        (rollout,) = self.ground.rollouts(self._tasks["null"])
        self._at_work(rollout)
        self.ground.ask(wire.Steer(rollout=rollout, action="pause"))
        time.sleep(0.3)
        self.ground.ask(wire.Steer(rollout=rollout, action="resume"))

    def _branch(self) -> None:
        """A sibling of the workstation that runs, or of one before."""
        closed = (
            "SELECT rollout, step FROM steps WHERE rollout LIKE 'station-%' AND snapshot <> ''"
            " AND observation_seq IS NOT NULL LIMIT 1"
        )
        self.ground.until(lambda: self.ground.query(closed), 60, "a closed step")
        ((rollout, step),) = self.ground.query(closed)
        request = secrets.token_hex(8)
        self.ground.ask(wire.BranchRollout(request=request, rollout=rollout, step=step))

    def _cancel_paused(self) -> None:
        """A workstation whose worker is gone: its terminals are the supervisor's to end."""
        ground = self.ground
        (rollout,) = ground.rollouts(self._tasks["station"])
        self._cancelled.add(rollout)
        self._at_work(rollout)
        ground.ask(wire.Steer(rollout=rollout, action="pause"))
        ground.signal(signal.SIGKILL)
        self._after_death()
        ground.ask(wire.Steer(rollout=rollout, action="cancel"))

    def _crowd(self) -> None:
        """Every worker says something while the daemon is stopped: it finds all of it at once."""
        ground = self.ground
        ground.rollouts(self._tasks["null"], 10)
        end = time.monotonic() + REACHED_SECONDS
        waits = [order for order in ground.orders.iterdir() if order.name in WHEN]
        while ground.lives and waits[0].exists() and time.monotonic() < end:
            ground.signal(signal.SIGSTOP)
            time.sleep(0.2)
            ground.signal(signal.SIGCONT)
            time.sleep(0.05)

    def _at_work(self, rollout: str) -> None:
        steps = "SELECT 1 FROM steps WHERE rollout = ? AND step >= 2"
        self.ground.until(lambda: self.ground.query(steps, rollout), 60, f"{rollout} at work")

    # --- the account ------------------------------------------------------------------------------

    def finish(self, seconds: float = 120) -> Result:
        """Let every rollout come to its end without faults, stop, and hold all against the rest."""
        ground, result = self.ground, self.result
        ground.until(self._all_over, seconds, "every rollout ends")
        for speaker in self._speakers:
            speaker.stop()
        states = ground.states()
        for rollout, state in states.items():
            expected = "cancelled" if rollout in self._cancelled else "finished"
            if state != expected:
                result.findings.append(f"{rollout} is {state}, not {expected}")
        if code := ground.stop():
            result.findings.append(f"a stop ended with exit code {code}")
        result.findings += [f"left running: {line}" for line in ground.orphans]
        self._account()
        result.ready_seconds += ground.ready_seconds
        result.gone_seconds += ground.gone_seconds
        result.counts["rollouts"] += len(states)
        return result

    def _all_over(self) -> bool:
        if not self.ground.lives:
            self._after_death()
        return all(
            state in ("finished", "failed", "cancelled") for state in self.ground.states().values()
        )

    def _account(self) -> None:
        ground, result = self.ground, self.result
        seen, there = history(ground, self._speakers), stored(ground.home)
        result.findings += [f"{one.kind}: {one.what}" for one in check(seen, there)]
        result.findings += [f"verify: {one}" for one in verify_home(ground.home).findings]
        result.findings += self._terminals()
        result.findings += [f"still there: {line}" for line in self._left()]
        result.counts["acked"] += len(seen.acked)
        result.counts["guidance"] += len(seen.spoken)
        result.counts["guidance said again"] += sum(one.again for one in self._speakers)
        result.counts["acked again"] += sum(ack.duplicate for ack in seen.acked)
        result.counts["prompts"] += len(seen.prompts)
        result.counts["events"] += len(there.events)

    def _terminals(self) -> list[str]:
        """No command ran twice, and a terminal is the same one to the end."""
        found = []
        for folder in sorted((self.ground.folder / "host" / "rollouts").glob("station-*")):
            log = folder / "workspace" / "log.txt"
            lines = log.read_text().split() if log.exists() else []
            if (folder / "workspace.new").exists() or not log.parent.exists():
                found.append(f"{folder.name}: its workspace was not made whole")
            if len(lines) != len(set(lines)):
                found.append(f"{folder.name}: a command ran twice: {lines}")
            said = "".join(file.read_text(errors="replace") for file in folder.rglob("log.*"))
            shells = set(re.findall(r"shell (\d+)", said))
            if lines and not shells:
                found.append(f"{folder.name}: nothing of its terminal is logged")
            if len(shells) > 1 and not self._terminals_killed:
                found.append(f"{folder.name}: its terminal was not found again: {shells}")
        return found

    def _left(self) -> list[str]:
        """Processes that know this folder, after a clean stop; they have a moment to go."""
        end = time.monotonic() + ORPHAN_SECONDS
        while left := [*_knowing(str(self.ground.folder))]:
            if time.monotonic() > end:
                return left
            time.sleep(0.05)
        return []


def _knowing(folder: str) -> list[str]:
    found: list[Any] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and alive(int(entry.name)):
            line = command_line(entry)
            if folder in line and "pytest" not in line and "soak" not in line:
                found.append(line)
    return found
