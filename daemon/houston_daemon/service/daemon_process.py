"""The daemon's process: `python -m houston_daemon.service.daemon_process --home DIR`.

Takes the home's lock, raises the limit of open files, starts the recorder's thread and the metrics,
builds the supervisor with all its parts, reports that it is ready, and closes everything at the
end. It also builds the command line of a worker. `supervisor` does the work in between;
`daemon_control` starts this process from a command.

Exit codes: 0 after a drain, 1 when it was cut short, 65 when the recorder met damage, 70 when it or
the supervisor's loop failed.
"""

import argparse
import faulthandler
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from houston_daemon.artifacts import store_owner
from houston_daemon.recorder.recorder_handle import Assignment, RecorderHandle
from houston_daemon.service import daemon_control, supervisor_queries
from houston_daemon.service.daemon_log import (
    FORK_SERVER_LOG,
    LOGGER,
    DaemonLogs,
    LogFile,
    open_log,
    worker_log_path,
)
from houston_daemon.service.daemon_reload import EditReloader
from houston_daemon.service.engine_child import end_former_replicas, release_gpus_of_dead_engines
from houston_daemon.service.engine_supervisor import EngineSupervisor, engine_server_factory
from houston_daemon.service.force_exit import ForceExit, force_exit_seconds
from houston_daemon.service.fork_server import LINE_DESCRIPTOR, PRELOADED_MODULE, StartWorker
from houston_daemon.service.gpu_ledger import GpuLedger, RolloutGpus
from houston_daemon.service.home_setup import (
    check_roles,
    kept_out_warning,
    make_home_folders,
    prepare_socket_folder,
    refuse_network_home,
)
from houston_daemon.service.orphaned_terminals import OrphanedTerminals
from houston_daemon.service.policy_activation import PolicyActivations
from houston_daemon.service.ray_spawner import RaySpawner, require_ray
from houston_daemon.service.shared_workers import SharedWorkers
from houston_daemon.service.supervisor import EXIT_RECORDER_FAILED, Supervisor
from houston_daemon.service.supervisor_inbox import SupervisorInbox
from houston_daemon.service.systemd_service import (
    UNIT_VARIABLE,
    extend_timeout,
    notify_systemd,
    own_unit,
)
from houston_daemon.service.trainers import Trainers
from houston_daemon.service.worker_pool import WorkerPool
from houston_daemon.service.worker_spawner import FORK_SERVER_SILENT_SECONDS, WorkerSpawner
from houston_shared import gpu_leases
from houston_shared.config import FILE_ENGINES, LoadedConfiguration, fingerprint, load_configuration
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.engine_settings import REQUEST_KEYS
from houston_shared.errors import ConfigurationError, ExitCode, HoustonError
from houston_shared.faults import point
from houston_shared.home_lock import HomeLock, HomeOwner, unusable_home
from houston_shared.records import RolloutSpec, spec_of_role
from houston_shared.secret_redaction import install_secrets
from houston_shared.times_and_counts import iso_time, now_us

if TYPE_CHECKING:
    from houston_daemon.service.prometheus_metrics import MetricsExporter

WANTED_DESCRIPTORS = 65_536


def raise_descriptor_limit() -> None:
    """Raise the soft limit of this process towards the hard one; a lower hard one is no error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = WANTED_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(WANTED_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


WORKER_MODULE = "houston_daemon.agent.rollout_worker"
SHARED_WORKER_MODULE = "houston_daemon.agent.shared_worker"
WORKER_MODULES_BY_ENGINE = {"recorded": "houston_daemon.demo.recording_player"}
"""Workers of engine kinds that are not run by the rollout loop."""
OPENING_SECONDS = 300.0
"""What systemd is asked for while a store is opened: a migration or a long log takes its time."""
MIN_ENGINE_STOP_SECONDS = 0.5
"""What engines get to end, however late it is."""


def main(arguments: list[str]) -> int:
    """Run the daemon until it ends; returns its exit code."""
    parser = argparse.ArgumentParser("houston_daemon.service.daemon_process")
    parser.add_argument("--home", required=True)
    parser.add_argument("--config")
    parser.add_argument("--ready-fd", type=int)
    parsed = parser.parse_args(arguments)
    if parsed.ready_fd is not None:
        os.set_inheritable(parsed.ready_fd, False)
    try:
        loaded = load_configuration(parsed.home, parsed.config)
    except HoustonError as problem:
        daemon_control.send_readiness(parsed.ready_fd, daemon_control.failure_report(problem))
        return int(problem.code)
    return serve_home(loaded, parsed.ready_fd, foreground=False)


def serve_home(loaded: LoadedConfiguration, ready_fd: int | None, foreground: bool) -> int:
    """Take the home, start the recorder, say that it is ready, supervise until the end.

    In the foreground a start that fails raises HoustonError; else it is said on `ready_fd`.
    """
    faulthandler.enable()  # a watchdog's ABRT, or a crash, says where every thread stood
    raise_descriptor_limit()
    lock = HomeLock(loaded.home)
    me = HomeOwner(
        os.getpid(),
        iso_time(now_us()),
        fingerprint(loaded.config),
        loaded.source,
        os.environ.get(UNIT_VARIABLE, ""),
    )
    code: int | None = None
    try:
        log = _prepare_home(loaded, foreground)
        point("supervisor.lock.before")
        if other_owner := lock.take(me):
            daemon_control.send_readiness(
                ready_fd, daemon_control.ReadinessReport(running=other_owner)
            )
            return int(ExitCode.BUSY) if own_unit() else int(ExitCode.DONE)
        point("supervisor.lock.after")
        prepare_socket_folder(loaded.home, loaded.config.daemon.group)
        code = _run_supervisor(loaded, log, ready_fd, lock, me)
        return code
    except HoustonError as problem:
        LOGGER.error("not started: %s", problem)
        if foreground:
            raise
        daemon_control.send_readiness(ready_fd, daemon_control.failure_report(problem))
        return int(problem.code)
    finally:
        failed = code in (EXIT_RECORDER_FAILED, ExitCode.DAMAGED)
        # A start that came to nothing: the next one still tells of who died.
        lock.release(me if failed else lock.died if code is None else None)


def _prepare_home(loaded: LoadedConfiguration, foreground: bool) -> LogFile:
    settings = loaded.config.daemon
    refuse_network_home(loaded.home)
    make_home_folders(loaded.home)
    install_secrets(loaded.config)  # before the first line is logged and the first child started
    try:
        log = open_log(
            loaded.home.logs / "daemon.log", settings.log_mb, settings.log_files, foreground
        )
    except OSError as problem:
        raise unusable_home(loaded.home, problem) from None
    check_roles(loaded)
    if loaded.config.ray.address:
        require_ray()
    if warning := kept_out_warning(loaded):
        LOGGER.warning("%s", warning)
    return log


def _run_supervisor(
    loaded: LoadedConfiguration, log: LogFile, ready_fd: int | None, lock: HomeLock, me: HomeOwner
) -> int:
    from houston_daemon.recorder.recorder_thread import Recorder

    died = supervisor_queries.read_crashed_daemon(lock.died, loaded.home)
    inbox = SupervisorInbox()
    force_exit = ForceExit(inbox.put, force_exit_seconds(loaded))
    force_exit.start((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
    exporter = _make_metrics_exporter(loaded)
    recorder: RecorderHandle = Recorder(loaded.home, loaded.config, inbox.put, died)
    LOGGER.info("starting on %s (configuration: %s)", loaded.home.path, loaded.source)
    extend_timeout(OPENING_SECONDS)
    point("supervisor.recorder.before")
    recorder.start()
    if exporter:
        exporter.start(recorder)
    on_change = partial(_update_lock_owner, loaded, lock, me)
    supervisor, spawner, engines = _build_supervisor(
        loaded, recorder, inbox, log, force_exit, on_change
    )
    _announce_ready(ready_fd, supervisor_queries.report_crash(died, loaded.home), recorder.epoch)
    code = EXIT_RECORDER_FAILED
    try:
        code = supervisor.run()
    except Exception:  # noqa: BLE001 whatever it was: workers end, the store is closed, exit 70
        LOGGER.exception("the supervisor failed")
    supervisor.close()
    force_exit.begin_shutdown()
    if exporter:
        exporter.stop()
    point("supervisor.finish.before")
    spawner.close()  # and with it every worker that is left
    keep = supervisor.keeps_engine or code in (EXIT_RECORDER_FAILED, ExitCode.DAMAGED)
    _stop_recorder_and_engines(recorder, engines, keep, supervisor.seconds_left)
    supervisor.finish_copies()
    failure_note = supervisor.failure and f" (writer failed: {supervisor.failure})"
    LOGGER.info("ended with exit code %s%s", code, failure_note)
    return code


def _announce_ready(ready_fd: int | None, crash: str, epoch: int) -> None:
    """crash: what is known of the daemon before, where it died."""
    point("supervisor.ready.before")
    report = daemon_control.ReadinessReport(ready=True, before=crash)
    daemon_control.send_readiness(ready_fd, report)
    point("supervisor.ready.after")
    notify_systemd("READY=1")
    LOGGER.info("ready (pid %s, epoch %s)", os.getpid(), epoch)


def _make_metrics_exporter(loaded: LoadedConfiguration) -> "MetricsExporter | None":
    """None where no metrics are asked for: those daemons do not load what makes them."""
    if not (loaded.config.metrics.listen or loaded.config.metrics.file):
        return None
    from houston_daemon.service.prometheus_metrics import MetricsExporter

    return MetricsExporter(loaded)


def _update_lock_owner(loaded: LoadedConfiguration, lock: HomeLock, me: HomeOwner) -> None:
    """Who looks for the daemon of the home reads what it runs with now."""
    now = msgspec.structs.replace(
        me, configuration=fingerprint(loaded.config), source=loaded.source
    )
    try:
        lock.describe(now)
    except OSError as problem:
        LOGGER.warning("the lock of the home could not be written: %s", problem)


def _build_supervisor(
    loaded: LoadedConfiguration,
    recorder: RecorderHandle,
    inbox: SupervisorInbox,
    log: LogFile,
    force_exit: ForceExit,
    on_change: Callable[[], None],
) -> tuple[Supervisor, WorkerSpawner, EngineSupervisor]:
    settings, home = loaded.config.daemon, loaded.home
    patience = settings.engine_patience_seconds
    gpu_counts = {host: loaded.gpus(host) for host in (LOCAL_HOST, *loaded.config.hosts.named)}
    ledger = GpuLedger(gpu_leases.gpu_ledger_file(home), gpu_counts)
    end_former_replicas(loaded)
    release_gpus_of_dead_engines(home, ledger)
    spawner = _make_spawner(loaded, inbox)
    gpus = RolloutGpus(home, ledger, loaded.config.ray.schedules_gpus)
    engines = EngineSupervisor(engine_server_factory(loaded, ledger), recorder, inbox.put, patience)
    workers = _make_worker_pool(loaded, recorder, inbox, spawner, gpus)
    orphans = OrphanedTerminals(home.database, loaded.host_root, inbox)
    logs = DaemonLogs(
        log,
        lambda rollout: worker_log_path(home, rollout),
        settings.log_mb * 1_000_000,
        settings.log_files,
    )
    trainers = Trainers(loaded, recorder, inbox, ledger, lambda: engines.states)
    activations = PolicyActivations(loaded, recorder, engines, inbox.put)
    supervisor = Supervisor(
        loaded,
        recorder,
        inbox,
        spawner,
        workers,
        engines,
        orphans,
        logs,
        force_exit,
        gpus,
        trainers,
        activations,
        EditReloader(loaded, recorder, inbox, engines, workers, on_change),
    )
    return supervisor, spawner, engines


def _make_worker_pool(
    loaded: LoadedConfiguration,
    recorder: RecorderHandle,
    inbox: SupervisorInbox,
    spawner: WorkerSpawner,
    gpus: RolloutGpus,
) -> WorkerPool:
    settings, log_path = loaded.config.daemon, partial(worker_log_path, loaded.home)
    shared = SharedWorkers(
        partial(_start_shared_worker, loaded, spawner),
        partial(_shared_worker_arguments, loaded),
        log_path,
        inbox,
        settings.rollouts_per_worker,
    )
    return WorkerPool(
        recorder,
        partial(_start_worker, loaded, spawner, gpus),
        log_path,
        settings.max_rollouts,
        settings.silent_seconds,
        shared,
        spawner.signal_worker if isinstance(spawner, RaySpawner) else None,
    )


def _make_spawner(loaded: LoadedConfiguration, inbox: SupervisorInbox) -> WorkerSpawner:
    """Whoever starts workers: here, or on the nodes of a cluster where one is named."""
    patience = min(FORK_SERVER_SILENT_SECONDS, loaded.config.daemon.silent_seconds)
    if loaded.config.ray.address:
        return RaySpawner(inbox, loaded, patience)
    log = worker_log_path(loaded.home, FORK_SERVER_LOG)
    return WorkerSpawner(inbox, PRELOADED_MODULE, log, patience)


def _start_worker(
    loaded: LoadedConfiguration,
    spawner: WorkerSpawner,
    gpus: RolloutGpus,
    assignment: Assignment,
    urls: Mapping[str, str],
) -> None:
    request = _worker_request(loaded, assignment, urls, gpus)
    if isinstance(spawner, RaySpawner):
        spawner.start_at_place(request, assignment.spec)
    else:
        spawner.start_worker(request)


def _stop_recorder_and_engines(
    recorder: RecorderHandle, engines: EngineSupervisor, keep: bool, seconds: float
) -> None:
    """End the engines and close the database, both at once, in what is left of the time."""
    patience = max(MIN_ENGINE_STOP_SECONDS, seconds)
    ending = threading.Thread(target=engines.stop, args=(keep, patience), daemon=True)
    ending.start()
    point("supervisor.stop.before")
    recorder.stop()
    point("supervisor.stop.after")
    ending.join(patience)


def _recorder_endpoint(loaded: LoadedConfiguration) -> str:
    """Where workers reach the recorder: a socket of this machine, or the file that says it."""
    ray = loaded.config.ray
    return (ray.address and ray.endpoint) or loaded.home.socket("ingest")


def _shared_worker_arguments(
    loaded: LoadedConfiguration, assignment: Assignment, urls: Mapping[str, str]
) -> tuple[str, ...]:
    arguments, spec = ["--endpoint", _recorder_endpoint(loaded)], assignment.spec
    if engine_url := urls[spec.engine]:
        arguments += ["--engine-url", engine_url]
    if requests := _engine_requests(loaded, spec):
        arguments += ["--engine-requests", msgspec.json.encode(requests).decode()]
    roles = {}
    for role, own in spec.role_engines.items():
        url = {"url": urls[own.engine]} if urls[own.engine] else {}
        roles[role] = {**_engine_requests(loaded, spec_of_role(spec, role)), **url}
    if roles:
        arguments += ["--role-engines", msgspec.json.encode(roles).decode()]
    return tuple(arguments)


def _start_shared_worker(
    loaded: LoadedConfiguration,
    spawner: WorkerSpawner,
    name: str,
    arguments: tuple[str, ...],
    line: socket.socket,
) -> None:
    request = StartWorker(
        rollout=name,
        lease=0,
        module=SHARED_WORKER_MODULE,
        arguments=[*arguments, "--name", name, "--line", str(LINE_DESCRIPTOR)],
        log=str(worker_log_path(loaded.home, name)),
        log_bytes=loaded.config.daemon.log_mb * 1_000_000,
        log_files=loaded.config.daemon.log_files,
    )
    if isinstance(spawner, RaySpawner):
        spawner.start_at_place(request, None, line)
    else:
        spawner.start_worker(request, line)


def _worker_request(
    loaded: LoadedConfiguration,
    assignment: Assignment,
    urls: Mapping[str, str],
    gpus: RolloutGpus,
) -> StartWorker:
    rollout = assignment.spec.rollout
    arguments = [*_shared_worker_arguments(loaded, assignment, urls), "--rollout", rollout]
    arguments += ["--lease", str(assignment.lease)]
    if loaded.config.artifacts.url:
        arguments += ["--artifacts", loaded.config.artifacts.url]
        if _recorder_endpoint(loaded) == loaded.config.ray.endpoint:  # of other machines
            owner = store_owner.name_owner(str(loaded.home.path), store_owner.this_host())
            arguments += ["--artifacts-owner", owner]
    for host, numbers in gpus.gpus_of(rollout).items():
        arguments += ["--gpus", f"{host}={','.join(map(str, numbers))}"]
    kind = str(assignment.spec.engine_settings.get("kind"))
    return StartWorker(
        rollout=rollout,
        lease=assignment.lease,
        module=WORKER_MODULES_BY_ENGINE.get(kind, WORKER_MODULE),
        arguments=arguments,
        log=str(worker_log_path(loaded.home, rollout)),
        log_bytes=loaded.config.daemon.log_mb * 1_000_000,
        log_files=loaded.config.daemon.log_files,
    )


def _engine_requests(loaded: LoadedConfiguration, spec: RolloutSpec) -> dict[str, object]:
    """How the configuration in force has the spec's engine asked; empty where it is no longer
    the kind of engine that the rollout was started with, and where it is wrong: that ends none."""
    engine = loaded.config.engines.get(spec.engine)
    if engine is None or engine.kind in FILE_ENGINES:
        return {}
    if engine.kind != spec.engine_settings.get("kind"):
        return {}
    from houston_daemon.engines.engine_registry import (
        check_request_settings,  # 70 ms that no start pays without
    )

    requests = {key: msgspec.to_builtins(getattr(engine, key)) for key in REQUEST_KEYS}
    try:
        check_request_settings({"kind": engine.kind, **requests})
    except ConfigurationError as problem:
        LOGGER.error("engine %s keeps its old request settings: %s", spec.engine, problem)
        return {}
    return requests


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
