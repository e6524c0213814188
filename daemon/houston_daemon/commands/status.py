"""`houston daemon status`: whether the daemon runs (exit code 0 or 69) and how it stands."""

import argparse
from datetime import timedelta

import msgspec

from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.control_client import ControlClient
from houston_shared.errors import DaemonNotRunning, ExitCode
from houston_shared.store.queries import rollouts
from houston_shared.store.queries.rollouts import Waiting
from houston_shared.store.reader import Reader
from houston_shared.wire import AskStatus, Status

STOPPED = {"pid": None, "state": "stopped", "uptime": 0.0}


def arguments(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Show it. Without a daemon the JSON says `stopped`, and the exit code is 69."""
    try:
        with ControlClient(loaded.home) as client:
            status = client.ask(AskStatus())
    except DaemonNotRunning:
        if not arguments.json:
            raise
        out.json_line({**STOPPED, "home": str(loaded.home.path)})
        return int(ExitCode.DAEMON_NOT_RUNNING)
    assert isinstance(status, Status)
    if arguments.json:
        out.json_line(_whole(status))
    else:
        with Reader(loaded.home) as reader:
            _show(status, reader.run(rollouts.waiting()))
    return int(ExitCode.DONE)


def _whole(status: Status) -> dict[str, object]:
    """All fields, the empty ones too; without the message's tag."""
    return {name: msgspec.to_builtins(getattr(status, name)) for name in status.__struct_fields__}


def _show(status: Status, waiting: list[Waiting]) -> None:
    up = timedelta(seconds=int(status.uptime))
    counts = ", ".join(f"{count} {state}" for state, count in sorted(status.rollouts.items()))
    out.line(f"{status.state} on {status.home} (pid {status.pid}, for {up}, {status.version})")
    out.line(f"  rollouts  {counts or 'none'}; {status.workers} workers")
    for name, state in sorted(status.engines.items()):
        out.line(f"  engine    {name}: {state}")
    for one in waiting:
        out.line(f"  engine    {one.engine}: {one.said}")
    out.line(
        f"  store     {status.queue} messages wait, commit p99 {status.commit_p99_ms:.1f} ms, "
        f"log {status.wal_mb:.1f} MB, disk {status.disk_free_mb:,.0f} MB free"
    )
    out.line(f"  consoles  {status.consoles}; search lags {status.search_lag} events")
    if status.last_error:
        out.line(f"  last error: {status.last_error}")
