"""Faults on order: a process dies, hangs or fails at a named point.

`point(name)` of `houston_shared.faults` stands in the source where a crash is dangerous, and does
nothing. `seen/sitecustomize.py`, which Python imports before anything else where
`fault_environment` is its environment, puts one of the classes here in its place. What each name
means stands in `fault_points`. Two ways to order:

    HOUSTON_FAULTS=recorder.commit.after=kill@3     this process, at the third time it comes by
    HOUSTON_FAULTS=/some/folder                     a file there, named like the point, says
                                                    `kill@3`; whoever fires removes it first

The folder also arms processes that run already and those that they start, and each order in it is
carried out once. What fired is written to `<folder>/fired`, a line each: name, action, pid. A file
`clock` there holds seconds since 1970: processes that start then read this wall time for good, and
their measured times (`time.monotonic_ns`) stand still; waiting (`time.monotonic`) goes on.

Actions: `kill` (SIGKILL to oneself), `stop` (SIGSTOP), `exit=CODE` (without any clean-up), `raise`
(an Injected), `enospc` (an OSError: no space left), `delay=SECONDS`, `clock=SECONDS` (from then on
the wall clock of this process reads so much later).
"""

import errno
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FAULTS_VARIABLE = "HOUSTON_FAULTS"
FIRED_FILE = "fired"
CLOCK_FILE = "clock"
FAULT_ACTIONS = frozenset({"kill", "stop", "exit", "raise", "enospc", "delay", "clock"})


class InjectedFault(RuntimeError):
    """What `raise` raises: an error that nobody expects."""


class Fault(NamedTuple):
    """What happens at a point, and when."""

    action: str
    value: float = 0.0
    """Seconds or exit code."""
    at: int = 1
    """The how-manieth time."""


def parse_fault(text: str) -> Fault:
    """Read `action[=value][@n]`; raises ValueError."""
    action_text, _, at = text.strip().partition("@")
    action, _, value = action_text.partition("=")
    if action not in FAULT_ACTIONS:
        raise ValueError(f"{text!r}: the action is one of {', '.join(sorted(FAULT_ACTIONS))}")
    return Fault(action, float(value or 0), int(at or 1))


def parse_fault_orders(text: str) -> dict[str, Fault]:
    """Read `point=action[=value][@n]`, several with commas between; raises ValueError."""
    faults = {}
    for order in filter(None, text.split(",")):
        name, _, fault = order.partition("=")
        faults[name.strip()] = parse_fault(fault)
    return faults


class ProcessFaults:
    """Faults of this process alone."""

    def __init__(self, faults: dict[str, Fault]) -> None:
        self._faults = faults
        self._times: dict[str, int] = {}

    def __call__(self, name: str) -> None:
        """Come by the point `name`."""
        times = self._times[name] = self._times.get(name, 0) + 1
        fault = self._faults.get(name)
        if fault is not None and times == fault.at:
            carry_out_fault(fault, name)


def order_fault(folder: Path, name: str, fault: str) -> None:
    """Order a fault at the point `name`; nobody reads an order that is half written."""
    beside = folder / ".new"
    beside.write_text(fault)
    beside.replace(folder / name)


class FaultFolder:
    """Faults that lie as files in a folder, for every process that sees it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._times: dict[tuple[str, int], int] = {}
        """How often a point was reached since the file that orders its fault was made."""
        clock = path / CLOCK_FILE
        if clock.exists():
            _fix_wall_clock(int(clock.read_text(encoding="utf-8")))

    def __call__(self, name: str) -> None:
        """Come by the point `name`."""
        order = self._path / name
        try:
            stamp = order.stat().st_mtime_ns
            fault = parse_fault(order.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        times = self._times[name, stamp] = self._times.get((name, stamp), 0) + 1
        if times < fault.at:
            return
        try:
            order.unlink()
        except FileNotFoundError:  # another process was first
            return
        with (self._path / FIRED_FILE).open("ab", buffering=0) as fired:
            fired.write(f"{name} {fault.action} {os.getpid()}\n".encode())
        carry_out_fault(fault, name)


def carry_out_fault(fault: Fault, name: str) -> None:
    """Carry a fault out. Raises what it says."""
    match fault.action:
        case "kill" | "stop":
            number = signal.SIGKILL if fault.action == "kill" else signal.SIGSTOP
            os.kill(os.getpid(), number)
        case "exit":
            os._exit(int(fault.value))
        case "raise":
            raise InjectedFault(f"ordered at {name}")
        case "enospc":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        case "delay":
            time.sleep(fault.value)
        case "clock":
            _shift_wall_clock(fault.value)


def _shift_wall_clock(seconds: float) -> None:
    """Set this process's wall clock; its monotonic clock runs on."""
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + seconds
    time.time_ns = lambda: now_ns() + int(seconds * 1_000_000_000)


def _fix_wall_clock(seconds: int) -> None:
    """Let this process read `seconds` for good, and let no measured time pass."""
    instant = time.monotonic_ns()
    time.time = lambda: float(seconds)
    time.time_ns = lambda: seconds * 1_000_000_000
    time.monotonic_ns = lambda: instant


def ordered_point(orders: str) -> Callable[[str], None]:
    """What `point` does in a process that was started with these orders; raises ValueError."""
    if orders.startswith("/"):
        return FaultFolder(Path(orders))
    return ProcessFaults(parse_fault_orders(orders))


def fault_environment(orders: str | Path) -> dict[str, str]:
    """What the environment of a process must hold, so that it and those it starts meet faults."""
    paths = (str(ROOT / "tests/faults/seen"), str(ROOT), os.environ.get("PYTHONPATH", ""))
    return {FAULTS_VARIABLE: str(orders), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
