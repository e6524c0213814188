"""The daemon's process: arguments, lock, log and readiness around the supervisor's loop."""

import argparse
import faulthandler
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from houston_daemon.recorder.protocol import Assignment, RecorderHandle
from houston_daemon.service import crash, ready
from houston_daemon.service.activations import Activations
from houston_daemon.service.births import SILENT_SECONDS, Births
from houston_daemon.service.descriptors import raise_descriptors
from houston_daemon.service.edits import Edits
from houston_daemon.service.engine_child import free_gpus
from houston_daemon.service.engine_server import servers
from houston_daemon.service.engines import Engines
from houston_daemon.service.filesystem import refuse_network
from houston_daemon.service.first_folders import make_folders
from houston_daemon.service.forcing import Forcing, forced_seconds
from houston_daemon.service.gpu_rollouts import RolloutGpus
from houston_daemon.service.gpus import GpuLedger
from houston_daemon.service.inbox import Inbox
from houston_daemon.service.leftovers import Leftovers
from houston_daemon.service.log import LOGGER, LogFile, open_log
from houston_daemon.service.logs import NURSERY, Logs
from houston_daemon.service.metrics import Figures
from houston_daemon.service.notify import extend_timeout, notify
from houston_daemon.service.nursery import Birth
from houston_daemon.service.role_checks import check_roles, warning
from houston_daemon.service.run_folder import settle
from houston_daemon.service.systemd import MARK, own_unit
from houston_daemon.service.trainers import Trainers
from houston_daemon.service.workers import Workers
from houston_daemon.supervisor import RECORDER_FAILED, Supervisor
from houston_shared import gpu_file
from houston_shared.clock import iso, now_us
from houston_shared.config import FILE_ENGINES, Loaded, fingerprint, load
from houston_shared.config_engine import REQUEST_KEYS
from houston_shared.config_hosts import LOCAL
from houston_shared.errors import ConfigurationError, ExitCode, HoustonError
from houston_shared.faults import point
from houston_shared.home import Home
from houston_shared.lock import HomeLock, Owner, unusable
from houston_shared.secret_values import install

WORKER = "houston_daemon.rollout.worker"
PRELOADED = "houston_daemon.rollout.preloaded"
"""What the process that forks workers imports."""
WORKERS = {"recorded": "houston_daemon.demo.playback"}
"""Workers of engine kinds that are not run by the rollout loop."""
OPENING_SECONDS = 300.0
"""What systemd is asked for while a store is opened: a migration or a long log takes its time."""
LEAST_ENGINE_SECONDS = 0.5
"""What engines get to end, however late it is."""


def main(arguments: list[str]) -> int:
    """Run the daemon until it ends; returns its exit code."""
    parser = argparse.ArgumentParser("houston_daemon.supervisor")
    parser.add_argument("--home", required=True)
    parser.add_argument("--config")
    parser.add_argument("--ready-fd", type=int)
    parsed = parser.parse_args(arguments)
    if parsed.ready_fd is not None:
        os.set_inheritable(parsed.ready_fd, False)
    try:
        loaded = load(parsed.home, parsed.config)
    except HoustonError as problem:
        ready.say(parsed.ready_fd, ready.failure(problem))
        return int(problem.code)
    return serve(loaded, parsed.ready_fd, foreground=False)


def serve(loaded: Loaded, ready_fd: int | None, foreground: bool) -> int:
    """Take the home, start the recorder, say that it is ready, supervise until the end.

    In the foreground a start that fails raises HoustonError; else it is said on `ready_fd`.
    """
    faulthandler.enable()  # a watchdog's ABRT, or a crash, says where every thread stood
    raise_descriptors()
    lock = HomeLock(loaded.home)
    me = Owner(
        os.getpid(),
        iso(now_us()),
        fingerprint(loaded.config),
        loaded.source,
        os.environ.get(MARK, ""),
    )
    code: int | None = None
    try:
        log = _prepare(loaded, foreground)
        point("supervisor.lock.before")
        if other := lock.take(me):
            ready.say(ready_fd, ready.Report(running=other))
            return int(ExitCode.BUSY) if own_unit() else int(ExitCode.DONE)
        point("supervisor.lock.after")
        settle(loaded.home, loaded.config.daemon.group)
        code = _run(loaded, log, ready_fd, lock, me)
        return code
    except HoustonError as problem:
        LOGGER.error("not started: %s", problem)
        if foreground:
            raise
        ready.say(ready_fd, ready.failure(problem))
        return int(problem.code)
    finally:
        failed = code in (RECORDER_FAILED, ExitCode.DAMAGED)
        # A start that came to nothing: the next one still tells of who died.
        lock.release(me if failed else lock.died if code is None else None)


def _prepare(loaded: Loaded, foreground: bool) -> LogFile:
    settings = loaded.config.daemon
    refuse_network(loaded.home)
    make_folders(loaded.home)
    install(loaded.config)  # before the first line is logged and the first child started
    try:
        log = open_log(
            loaded.home.logs / "daemon.log", settings.log_mb, settings.log_files, foreground
        )
    except OSError as problem:
        raise unusable(loaded.home, problem) from None
    check_roles(loaded)
    if said := warning(loaded):
        LOGGER.warning("%s", said)
    return log


def _run(loaded: Loaded, log: LogFile, ready_fd: int | None, lock: HomeLock, me: Owner) -> int:
    from houston_daemon.recorder.service import Recorder

    died = crash.died(lock.died, loaded.home)
    inbox = Inbox()
    forcing = Forcing(inbox.put, forced_seconds(loaded))
    forcing.start((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
    figures = Figures(loaded)
    recorder: RecorderHandle = Recorder(loaded.home, loaded.config, inbox.put, died)
    LOGGER.info("starting on %s (configuration: %s)", loaded.home.path, loaded.source)
    extend_timeout(OPENING_SECONDS)
    point("supervisor.recorder.before")
    recorder.start()
    figures.start(recorder)
    say = partial(_describe, loaded, lock, me)
    supervisor, births, engines = _crew(loaded, recorder, inbox, log, forcing, say)
    point("supervisor.ready.before")
    ready.say(ready_fd, ready.Report(ready=True, before=crash.told(died, loaded.home)))
    point("supervisor.ready.after")
    notify("READY=1")
    LOGGER.info("ready (pid %s, epoch %s)", os.getpid(), recorder.epoch)
    code = RECORDER_FAILED
    try:
        code = supervisor.run()
    except Exception:  # noqa: BLE001 whatever it was: workers end, the store is closed, exit 70
        LOGGER.exception("the supervisor failed")
    forcing.leaving()
    figures.stop()
    point("supervisor.finish.before")
    births.close()  # and with it every worker that is left
    keep = supervisor.keeps_engine or code in (RECORDER_FAILED, ExitCode.DAMAGED)
    _finish(recorder, engines, keep, supervisor.seconds_left)
    why = supervisor.failure and f" (writer failed: {supervisor.failure})"
    LOGGER.info("ended with exit code %s%s", code, why)
    return code


def _describe(loaded: Loaded, lock: HomeLock, me: Owner) -> None:
    """Who looks for the daemon of the home reads what it runs with now."""
    now = msgspec.structs.replace(
        me, configuration=fingerprint(loaded.config), source=loaded.source
    )
    try:
        lock.describe(now)
    except OSError as problem:
        LOGGER.warning("the lock of the home could not be written: %s", problem)


def _crew(
    loaded: Loaded,
    recorder: RecorderHandle,
    inbox: Inbox,
    log: LogFile,
    forcing: Forcing,
    taken: Callable[[], None],
) -> tuple[Supervisor, Births, Engines]:
    settings, home = loaded.config.daemon, loaded.home
    patience = settings.engine_patience_seconds
    ledger = GpuLedger(gpu_file.place(home), hosts_gpus(loaded))
    free_gpus(home, ledger)
    gpus = RolloutGpus(home, ledger)
    engines = Engines(servers(loaded, ledger), recorder, inbox.put, patience)
    births = Births(
        inbox, PRELOADED, worker_log(home, NURSERY), min(SILENT_SECONDS, settings.silent_seconds)
    )
    workers = Workers(
        recorder,
        lambda assignment, url: births.ask(_birth(loaded, assignment, url, gpus)),
        lambda rollout: worker_log(home, rollout),
        settings.max_rollouts,
        settings.silent_seconds,
    )
    leftovers = Leftovers(home.database, loaded.host_root, inbox)
    logs = Logs(log, lambda of: worker_log(home, of), log_bytes(loaded), settings.log_files)
    trainers = Trainers(loaded, recorder, inbox, ledger, lambda: engines.states)
    activations = Activations(loaded, recorder, engines, inbox.put)
    supervisor = Supervisor(
        loaded,
        recorder,
        inbox,
        births,
        workers,
        engines,
        leftovers,
        logs,
        forcing,
        gpus,
        trainers,
        activations,
        Edits(loaded, recorder, inbox, engines, workers, taken),
    )
    return supervisor, births, engines


def _finish(recorder: RecorderHandle, engines: Engines, keep: bool, seconds: float) -> None:
    """End the engines and close the database, both at once, in what is left of the time."""
    patience = max(LEAST_ENGINE_SECONDS, seconds)
    ending = threading.Thread(target=engines.stop, args=(keep, patience), daemon=True)
    ending.start()
    point("supervisor.stop.before")
    recorder.stop()
    point("supervisor.stop.after")
    ending.join(patience)


def log_bytes(loaded: Loaded) -> int:
    """Largest size of one log file."""
    return loaded.config.daemon.log_mb * 1_000_000


def worker_log(home: Home, rollout: str) -> Path:
    """Where the output of a rollout's workers goes."""
    return home.logs / "workers" / f"{rollout}.log"


def hosts_gpus(loaded: Loaded) -> dict[str, int]:
    """How many GPUs each host has for all together."""
    return {name: loaded.gpus(name) for name in (LOCAL, *loaded.config.hosts.named)}


def _birth(loaded: Loaded, assignment: Assignment, engine_url: str, gpus: RolloutGpus) -> Birth:
    rollout = assignment.spec.rollout
    arguments = ["--endpoint", loaded.home.socket("ingest"), "--rollout", rollout]
    arguments += ["--lease", str(assignment.lease)]
    if engine_url:
        arguments += ["--engine-url", engine_url]
    if requests := _requests(loaded, assignment):
        arguments += ["--engine-requests", msgspec.json.encode(requests).decode()]
    for host, numbers in gpus.of(rollout).items():
        arguments += ["--gpus", f"{host}={','.join(map(str, numbers))}"]
    kind = str(assignment.spec.engine_settings.get("kind"))
    return Birth(
        rollout=rollout,
        lease=assignment.lease,
        module=WORKERS.get(kind, WORKER),
        arguments=arguments,
        log=str(worker_log(loaded.home, rollout)),
        log_bytes=log_bytes(loaded),
        log_files=loaded.config.daemon.log_files,
    )


def _requests(loaded: Loaded, assignment: Assignment) -> dict[str, object]:
    """How the configuration in force has the rollout's engine asked; empty where it is no longer
    the kind of engine that the rollout was started with, and where it is wrong: that ends none."""
    spec = assignment.spec
    engine = loaded.config.engines.get(spec.engine)
    if engine is None or engine.kind in FILE_ENGINES:
        return {}
    if engine.kind != spec.engine_settings.get("kind"):
        return {}
    from houston_daemon.engines.choose import check_request  # 70 ms that no start pays without

    requests = {key: getattr(engine, key) for key in REQUEST_KEYS}
    try:
        check_request({"kind": engine.kind, **requests})
    except ConfigurationError as problem:
        LOGGER.error("engine %s is asked as before: %s", spec.engine, problem)
        return {}
    return requests
