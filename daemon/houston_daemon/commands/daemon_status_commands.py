"""`houston daemon status` and `houston daemon logs`.

Status asks the running daemon over its control socket, or reads from lock, log and database what
is known of one that stopped or died; `--lsb` gives exit codes of an init script, else it is 0
when it runs and 69 when it does not. Logs prints the end of the daemon's, an engine's or a
worker's log and follows it over rotations. Both need nothing but the home and import little,
since scripts call them often.
"""

import argparse
from itertools import chain
from pathlib import Path

import msgspec

from houston_daemon.service.daemon_log import (
    LOG_CHECK_SECONDS,
    follow_log,
    read_last_line,
    read_log_tail,
    worker_log_path,
)
from houston_daemon.service.engine_endpoints import engine_log
from houston_shared import command_output
from houston_shared.command_arguments import whole_number
from houston_shared.config import LoadedConfiguration
from houston_shared.control_client import ControlClient, describe_blocked_process
from houston_shared.control_messages import Status
from houston_shared.daemon_status_text import status_lines, title_words
from houston_shared.errors import (
    DaemonFrozen,
    DaemonNotRunning,
    ExitCode,
    HoustonError,
    NoAnswer,
    NotFound,
)
from houston_shared.home import Home
from houston_shared.home_lock import HomeOwner, find_dead_daemon, find_running_daemon
from houston_shared.store import rollout_queries
from houston_shared.store.rollout_queries import EngineWaitedFor
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import iso_time, local_time, pluralize
from houston_shared.wire import AskStatus

LSB_DEAD, LSB_STOPPED, LSB_UNKNOWN = 1, 3, 4
"""Linux Standard Base, init script actions, `status`."""


def add_daemon_status_arguments(parser: argparse.ArgumentParser) -> None:
    """`--json`, `--lsb`."""
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument(
        "--lsb", action="store_true", help="exit code of an init script: 0, 1, 3 or 4"
    )


def run_daemon_status(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Show it; the JSON is one object whatever the state, the exit code says which."""
    try:
        with ControlClient(loaded.home) as client:
            status = client.ask(AskStatus())
    except DaemonNotRunning as stopped:
        return _not_running(arguments, loaded, stopped)
    except NoAnswer as silent:
        return _not_answering(arguments, loaded, silent)
    assert isinstance(status, Status)
    if arguments.json:
        fields = _status_fields(status)
        if url := loaded.config.artifacts.url:
            fields["artifacts"] = {"url": url, **_read_copied(loaded.home, url)}
        command_output.print_json_line(fields)
    else:
        with Reader(loaded.home) as reader:
            _show_status(status, reader.run(rollout_queries.list_engines_waited_for()))
            if url := loaded.config.artifacts.url:
                newest = reader.run(rollout_queries.newest_seq())
                words = _copied_words(_read_copied(loaded.home, url), newest)
                command_output.print_line(f"  artifacts {url}: {words}")
    return int(ExitCode.DONE)


def _not_running(
    arguments: argparse.Namespace, loaded: LoadedConfiguration, stopped: DaemonNotRunning
) -> int:
    died = find_dead_daemon(loaded.home)
    last_line = read_last_line(loaded.home.logs / "daemon.log") if died else ""
    newest = _newest_event_time(loaded)
    if arguments.json:
        fields = _stopped_status("dead" if died else "stopped", loaded, last_line)
        command_output.print_json_line({**fields, "as_of": newest and iso_time(newest)})
    else:
        command_output.print_error(_crash_error(died, last_line) if died else stopped)
        if newest:
            command_output.print_note(
                f"  state of the rollouts as of {local_time(newest)}: houston rollout list"
            )
    if arguments.lsb:
        return LSB_DEAD if died else LSB_STOPPED
    return int(ExitCode.DAEMON_NOT_RUNNING)


def _newest_event_time(loaded: LoadedConfiguration) -> int | None:
    """When the newest event was stored, UTC microseconds; None where that cannot be read."""
    try:
        with Reader(loaded.home) as reader:
            return rollout_queries.last_known_at(reader)
    except HoustonError:
        return None  # whoever asks for rollouts is told why; here only the daemon is asked for


def _not_answering(
    arguments: argparse.Namespace, loaded: LoadedConfiguration, silent: NoAnswer
) -> int:
    owner = find_running_daemon(loaded.home)
    reason = describe_blocked_process(owner.pid) if owner else ""
    if arguments.json:
        problem = f"it does not answer{': ' * bool(reason)}{reason}"
        command_output.print_json_line(
            {**_stopped_status("silent", loaded, problem), "pid": owner.pid if owner else None}
        )
    else:
        step = silent.next if isinstance(silent, DaemonFrozen) else "houston daemon stop"
        command_output.print_error(HoustonError(silent.cause, next=step))
    return LSB_UNKNOWN if arguments.lsb else int(silent.code)


def _stopped_status(state: str, loaded: LoadedConfiguration, last_error: str) -> dict[str, object]:
    return {
        "pid": None,
        "state": state,
        "uptime": 0.0,
        "home": str(loaded.home.path),
        "last_error": last_error,
    }


def _crash_error(died: HomeOwner, last_line: str) -> DaemonNotRunning:
    last = f"\n  its log ends: {last_line}" if last_line else ""
    return DaemonNotRunning(
        f"No daemon runs; the last one (pid {died.pid}, since {died.since}) did not end cleanly.",
        f"Everything that was acknowledged is stored; rollouts continue at the next start.{last}",
    )


def _status_fields(status: Status) -> dict[str, object]:
    """All fields, the empty ones too; without the message's tag."""
    return {name: msgspec.to_builtins(getattr(status, name)) for name in status.__struct_fields__}


def _read_copied(home: Home, url: str) -> dict[str, object]:
    """How far the store is: `seq` and `at`; empty where nothing was copied to it."""
    from houston_daemon.artifacts.store_owner import read_copied

    copied = read_copied(home, url)
    return {"seq": copied.seq, "at": copied.at} if copied else {}


def _copied_words(copied: dict[str, object], newest: int) -> str:
    if not copied:
        return "nothing is copied yet"
    behind = newest - int(str(copied["seq"]))
    wait = f", {pluralize(behind, 'event')} wait" if behind > 0 else ""
    return f"event {copied['seq']}, as of {copied['at']}{wait}"


def _show_status(status: Status, waiting: list[EngineWaitedFor]) -> None:
    command_output.print_line(title_words(status))
    for label, words, _ in status_lines(status, waiting):
        command_output.print_line(f"  {label:<9} {words}")


def add_daemon_logs_arguments(parser: argparse.ArgumentParser) -> None:
    """`-f`, `-n`, `--engine`, `--rollout`, `--json`."""
    parser.add_argument("-f", "--follow", action="store_true", help="wait for further lines")
    parser.add_argument(
        "-n", "--lines", type=whole_number(), default=40, metavar="N", help="last N lines"
    )
    log_choice = parser.add_mutually_exclusive_group()
    log_choice.add_argument("--engine", metavar="ENGINE", help="the log of this engine instead")
    log_choice.add_argument(
        "--rollout", metavar="R", help="the log of this rollout's worker instead"
    )
    parser.add_argument("--json", action="store_true", help="each line as JSON, with its file")


def run_daemon_logs(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Print lines; with `-f` until Ctrl-C, over rotations."""
    if arguments.rollout:
        path = _worker_log_path(loaded, arguments.rollout)
    else:
        path = (
            _engine_log_path(loaded, arguments.engine)
            if arguments.engine
            else _daemon_log_path(loaded)
        )
    try:
        lines, end = read_log_tail(path, arguments.lines)
    except OSError as problem:
        raise _unreadable_log(path, problem) from None
    for line in chain(lines, follow_log(path, end) if arguments.follow else ()):
        if arguments.json:
            command_output.print_json_line({"log": str(path), "line": line})
        else:
            command_output.print_line(line)
            command_output.flush_stdout()
    return int(ExitCode.DONE)


def _daemon_log_path(loaded: LoadedConfiguration) -> Path:
    path = loaded.home.logs / "daemon.log"
    if _log_exists(path):
        return path
    if find_running_daemon(loaded.home):
        raise HoustonError(
            f"The log {path} was removed while the daemon runs.",
            f"It begins a new one within {LOG_CHECK_SECONDS:g} s.",
            "houston daemon logs",
        )
    raise NotFound(f"There is no log {path}.", next="houston daemon start")


def _log_exists(path: Path) -> bool:
    """Whether there is such a log; raises HoustonError where this user may not look."""
    try:
        return path.exists()
    except OSError as problem:
        raise _unreadable_log(path, problem) from None


def _unreadable_log(path: Path, problem: OSError) -> HoustonError:
    """Logs are the owner's: they quote agents and hold paths, and roles do not reach files."""
    denied = isinstance(problem, PermissionError)
    return HoustonError(
        f"The log {path} cannot be read: {problem.strerror}.",
        next="Ask the user whose daemon it is; `houston log --audit` shows what people did."
        if denied
        else "",
    )


def _engine_log_path(loaded: LoadedConfiguration, name: str) -> Path:
    path = engine_log(loaded.home, name)
    if not _log_exists(path):
        engines = sorted(file.stem for file in path.parent.glob("*.log"))
        raise NotFound(
            f"There is no log of an engine {name!r}; there are: {', '.join(engines) or 'none'}.",
            next="houston daemon status",
        )
    return path


def _worker_log_path(loaded: LoadedConfiguration, name: str) -> Path:
    with Reader(loaded.home) as reader:
        rollout = reader.run(rollout_queries.find_rollout(name)).id
    path = worker_log_path(loaded.home, rollout)
    if not _log_exists(path):
        raise HoustonError(
            f"The worker of {rollout} has written nothing.", next=f"houston rollout show {rollout}"
        )
    return path
