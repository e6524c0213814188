"""`houston daemon status`: whether the daemon runs and how it stands.

Exit code 0 when it runs and 69 when it does not; with `--lsb` those of init scripts: 0 it runs,
1 it died and left its lock, 3 it does not run, 4 it holds the home and does not answer.
"""

import argparse
from datetime import timedelta

import msgspec

from houston_daemon.service.log import last_line
from houston_shared import out
from houston_shared.clock import iso, local
from houston_shared.config import Loaded
from houston_shared.control_client import ControlClient
from houston_shared.errors import DaemonNotRunning, ExitCode, Frozen, HoustonError, NoAnswer
from houston_shared.lock import Owner, holder, left_behind
from houston_shared.standing import stands
from houston_shared.store import last_known
from houston_shared.store.queries import rollouts
from houston_shared.store.queries.rollouts import Waiting
from houston_shared.store.reader import Reader
from houston_shared.wire import AskStatus
from houston_shared.wire_status import Status

LSB_DEAD, LSB_STOPPED, LSB_UNKNOWN = 1, 3, 4
"""Linux Standard Base, init script actions, `status`."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """`--json`, `--lsb`."""
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument(
        "--lsb", action="store_true", help="exit code of an init script: 0, 1, 3 or 4"
    )


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Show it; the JSON is one object whatever the state, the exit code says which."""
    try:
        with ControlClient(loaded.home) as client:
            status = client.ask(AskStatus())
    except DaemonNotRunning as stopped:
        return _not_running(arguments, loaded, stopped)
    except NoAnswer as silent:
        return _silent(arguments, loaded, silent)
    assert isinstance(status, Status)
    if arguments.json:
        out.json_line(_whole(status))
    else:
        with Reader(loaded.home) as reader:
            _show(status, reader.run(rollouts.waiting()))
    return int(ExitCode.DONE)


def _not_running(arguments: argparse.Namespace, loaded: Loaded, stopped: DaemonNotRunning) -> int:
    died = left_behind(loaded.home)
    said = last_line(loaded.home.logs / "daemon.log") if died else ""
    stood = _stood(loaded)
    if arguments.json:
        down = _down("dead" if died else "stopped", loaded, said)
        out.json_line({**down, "as_of": stood and iso(stood)})
    else:
        out.error(_death(died, said) if died else stopped)
        if stood:
            out.note(f"  rollouts stand as at {local(stood)}: houston rollout list")
    if arguments.lsb:
        return LSB_DEAD if died else LSB_STOPPED
    return int(ExitCode.DAEMON_NOT_RUNNING)


def _stood(loaded: Loaded) -> int | None:
    """When the newest event was stored, UTC microseconds; None where that cannot be read."""
    try:
        with Reader(loaded.home) as reader:
            return last_known.as_of(reader)
    except HoustonError:
        return None  # whoever asks for rollouts is told why; here only the daemon is asked for


def _silent(arguments: argparse.Namespace, loaded: Loaded, silent: NoAnswer) -> int:
    owner = holder(loaded.home)
    why = stands(owner.pid) if owner else ""
    if arguments.json:
        said = f"it does not answer{': ' * bool(why)}{why}"
        out.json_line({**_down("silent", loaded, said), "pid": owner.pid if owner else None})
    else:
        step = silent.next if isinstance(silent, Frozen) else "houston daemon stop"
        out.error(HoustonError(silent.cause, next=step))
    return LSB_UNKNOWN if arguments.lsb else int(silent.code)


def _down(state: str, loaded: Loaded, last_error: str) -> dict[str, object]:
    return {
        "pid": None,
        "state": state,
        "uptime": 0.0,
        "home": str(loaded.home.path),
        "last_error": last_error,
    }


def _death(died: Owner, said: str) -> DaemonNotRunning:
    last = f"\n  its log ends: {said}" if said else ""
    return DaemonNotRunning(
        f"No daemon runs; the last one (pid {died.pid}, since {died.since}) did not come to its "
        "own end.",
        f"What was acknowledged is stored; rollouts go on at the next start.{last}",
    )


def _whole(status: Status) -> dict[str, object]:
    """All fields, the empty ones too; without the message's tag."""
    return {name: msgspec.to_builtins(getattr(status, name)) for name in status.__struct_fields__}


def _show(status: Status, waiting: list[Waiting]) -> None:
    up = timedelta(seconds=int(status.uptime))
    counts = ", ".join(f"{count} {state}" for state, count in sorted(status.rollouts.items()))
    out.line(
        f"{status.state} on {status.home} (pid {status.pid}, for {up}, epoch {status.epoch}, "
        f"{status.version})"
    )
    out.line(f"  rollouts  {counts or 'none'}; {_count(status.workers, 'workers')}")
    for name, state in sorted(status.engines.items()):
        out.line(f"  engine    {name}: {state}")
    for name, policy in sorted(status.policies.items()):
        out.line(f"  policy    {name}: new rollouts sample with {policy}")
    for name, said in sorted(status.training.items()):
        out.line(f"  training  {name}: {said}")
    for name, said in status.gpus.items():
        out.line(f"  gpus      {name}: {said}")
    for one in waiting:
        out.line(f"  engine    {one.engine}: {one.said}")
    out.line(
        f"  store     {status.queue} messages wait, commit p99 {status.commit_p99_ms:.1f} ms, "
        f"ack p99 {status.ack_p99_ms:.1f} ms, WAL {status.wal_mb:.1f} MB, "
        f"disk {status.disk_free_mb:,.0f} MB free"
    )
    out.line(f"  limits    of processes and memory: by {status.limits}")
    out.line(f"  consoles  {status.consoles}; search lags {status.search_lag} events")
    restarts = ", ".join(_count(n, part) for part, n in status.restarts.items() if n)
    out.line(f"  backup    {_backed(status)}")
    if restarts:
        out.line(f"  restarts  {restarts}, since the daemon's start")
    for name, said in sorted(status.troubles.items()):
        out.line(f"  trouble   {name}: {said}")
    if status.last_error:
        out.line(f"  last error: {status.last_error}")


def _count(number: int, parts: str) -> str:
    """`1 worker`, `2 workers`, `1 nursery`."""
    return f"{number} {parts.removesuffix('s') if number == 1 else parts}"


def _backed(status: Status) -> str:
    if status.backup_age is None:
        return "none; next: houston backup"
    minutes = status.backup_age / 60
    age = f"{minutes / 60:.0f} h" if minutes >= 90 else f"{minutes:.0f} min"
    return f"{age} ago, event {status.backup_event}"
