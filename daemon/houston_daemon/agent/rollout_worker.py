"""The process of one rollout: connects, reads the rollout's state, runs it, reports how it ended.

`python -m houston_daemon.agent.rollout_worker --endpoint ipc://…|FILE --rollout R --lease N
[--engine-url U] …`. Started by the supervisor; ends with code 0 when it left as intended.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from houston_daemon.agent.engine_cache import EngineCache
from houston_daemon.agent.recorder_client import HEARTBEAT_SECONDS, IngestSocket, RecorderClient
from houston_daemon.agent.remote_line import LineRefused
from houston_daemon.agent.rollout_budgets import ActiveClock
from houston_daemon.agent.rollout_setup import (
    build_agent_loop,
    has_begun,
    make_rollout_environment,
    open_environment,
    wait_for_engine,
    wait_for_task_requirements,
)
from houston_daemon.agent.store_workspace import (
    SnapshotCopies,
    WorkerStore,
    bring_missing_files,
    keeps_snapshots_here,
)
from houston_daemon.agent.worker_control import ControlState, WorkerExit
from houston_daemon.engines.engine_protocol import Engine
from houston_daemon.engines.replicated_engine import ReplicatedEngine, take_replicas
from houston_daemon.environments.environment_protocol import Environment, Gpus
from houston_daemon.hosts.host_protocol import NeedsPerson
from houston_shared import wire
from houston_shared.errors import HoustonError
from houston_shared.faults import point
from houston_shared.recorder_endpoint import RecorderEndpoint, parse_endpoint
from houston_shared.records import RolloutState, spec_of_role
from houston_shared.redacted_logging import log_redacted_to_stderr
from houston_shared.sample_roles import SampleRole
from houston_shared.task import parse_task_record

log = logging.getLogger(__name__)
NO_STORE = WorkerStore()
ENDPOINT_HELP = "the recorder's ingest socket, or the file of a host that was added"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one worker; its exit code."""
    parsed = _argument_parser().parse_args(sys.argv[1:] if arguments is None else arguments)
    log_redacted_to_stderr("%(asctime)s %(levelname)s %(name)s: %(message)s")
    for noisy in ("httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        gpus = dict(map(_parse_gpu_lease, parsed.gpus))
        engines, endpoint = read_engine_arguments(parsed), parse_endpoint(parsed.endpoint)
        store = WorkerStore(parsed.artifacts, parsed.artifacts_owner)
        before = parsed.workspace_was_on
        asyncio.run(
            run_worker(endpoint, parsed.rollout, parsed.lease, engines, gpus, store, before)
        )
    except HoustonError as problem:
        log.error("%s", problem)
        return int(problem.code)
    return 0


def _argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("houston worker", description="one rollout")
    parser.add_argument("--endpoint", required=True, help=ENDPOINT_HELP)
    parser.add_argument("--rollout", required=True)
    parser.add_argument("--lease", type=int, required=True)
    add_engine_arguments(parser)
    was_on = "machine that its last worker ran on, where that was another"
    parser.add_argument("--workspace-was-on", default="", metavar="HOST", help=was_on)
    leased = "GPUs that the rollout has leased on a host"
    store = "store that has the snapshots of rollouts"
    parser.add_argument("--artifacts", default="", metavar="URL", help=store)
    owner = "home that writes to the store: this worker copies its snapshots there"
    parser.add_argument("--artifacts-owner", default="", metavar="HOST=HOME", help=owner)
    parser.add_argument("--gpus", action="append", default=[], metavar="HOST=0,1", help=leased)
    return parser


class EngineOverrides(NamedTuple):
    """What the daemon knows of a rollout's engines now; it overrides what the spec says."""

    url: str = ""
    """Where a child engine answers."""
    requests: Mapping[str, Any] = {}
    """How the engine is asked now, over what its table said when the rollout was started."""
    roles: Mapping[str, Mapping[str, Any]] = {}
    """By role with an engine of its own, both of that engine."""


NO_ENGINE_OVERRIDES = EngineOverrides()


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that tell a worker of its rollouts' engines."""
    parser.add_argument("--engine-url", default="", help="where a child engine answers")
    requests = "keys of the engine's table that say how it is asked, as JSON"
    parser.add_argument("--engine-requests", default="{}", metavar="JSON", help=requests)
    roles = "by role with an engine of its own, its `url` and such keys, as JSON"
    parser.add_argument("--role-engines", default="{}", metavar="JSON", help=roles)


def read_engine_arguments(arguments: argparse.Namespace) -> EngineOverrides:
    """The values of those arguments."""
    requests, roles = json.loads(arguments.engine_requests), json.loads(arguments.role_engines)
    return EngineOverrides(arguments.engine_url, requests, roles)


def _parse_gpu_lease(words: str) -> tuple[str, tuple[int, ...]]:
    host, _, numbers = words.partition("=")
    return host, tuple(map(int, numbers.split(",")))


async def run_worker(
    endpoint: RecorderEndpoint,
    rollout: str,
    lease: int,
    now: EngineOverrides = NO_ENGINE_OVERRIDES,
    gpus: Gpus | None = None,
    store: WorkerStore = NO_STORE,
    workspace_was_on: str = "",
) -> None:
    """Run one rollout until it is over, or until this worker is told to leave.

    now: overrides for its engines. gpus: its leased GPUs, by host. store: where snapshots are.
    workspace_was_on: the machine that its last worker ran on; empty for this one.
    Raises HoustonError when the recorder refuses a message.
    """
    control = ControlState()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
            asyncio.get_running_loop().add_signal_handler(number, control.drain)
    client = IngestSocket(endpoint, control)
    try:
        await run_rollout(
            client,
            control,
            rollout,
            lease,
            now,
            gpus,
            store=store,
            workspace_was_on=workspace_was_on,
        )
    finally:
        await client.close()


async def run_rollout(
    client: IngestSocket,
    control: ControlState,
    rollout: str,
    lease: int,
    now: EngineOverrides = NO_ENGINE_OVERRIDES,
    gpus: Gpus | None = None,
    engines: EngineCache | None = None,
    store: WorkerStore = NO_STORE,
    workspace_was_on: str = "",
) -> None:
    """Does what `run_worker` does, over an open connection; `client` stays open.

    engines: those shared with other rollouts of this process.
    """
    try:
        hello = wire.Hello(rollout=rollout, lease=lease, pid=os.getpid())
        point("worker.hello.before")
        welcome = await client.ask(hello, wire.Welcome)
        point("worker.hello.after")
        clock = ActiveClock(welcome.active_us)
        line = RecorderClient(client, control, clock, rollout, lease)
        welcome = hide_endpoint_file(with_current_requests(welcome, now), client.endpoint.file)
        run = WorkerRun(line, welcome, now.url, gpus or {}, engines, store, workspace_was_on)
        await _with_heartbeat(run, line, HEARTBEAT_SECONDS if engines else 0.0)
    except WorkerExit as leaving:
        log.info("left the rollout: %s", leaving.reason)


def with_current_requests(welcome: wire.Welcome, now: EngineOverrides) -> wire.Welcome:
    """The welcome with the request settings of the present configuration: there, people correct a
    parameter that an engine refuses, or the variable of a key."""
    settings = {**welcome.spec.engine_settings, **now.requests}
    roles = {
        role: msgspec.structs.replace(
            own, engine_settings={**own.engine_settings, **now.roles.get(role, {})}
        )
        for role, own in welcome.spec.role_engines.items()
    }
    spec = msgspec.structs.replace(welcome.spec, engine_settings=settings, role_engines=roles)
    return msgspec.structs.replace(welcome, spec=spec)


def hide_endpoint_file(welcome: wire.Welcome, file: str) -> wire.Welcome:
    """The welcome with this host's key file added to the files that agents never see."""
    if not file:
        return welcome
    spec = msgspec.structs.replace(welcome.spec, hidden=(*welcome.spec.hidden, file))
    return msgspec.structs.replace(welcome, spec=spec)


async def _with_heartbeat(life: "WorkerRun", line: RecorderClient, first_after: float) -> None:
    """Live while the heart beats; an old lease stops both."""
    watching = asyncio.create_task(line.clock.watch())
    living = asyncio.create_task(life.run())
    beating = asyncio.create_task(line.send_heartbeats(first_after))
    try:
        await asyncio.wait({living, beating}, return_when=asyncio.FIRST_COMPLETED)
        if not living.done():
            living.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await living
            beating.result()
        living.result()
    finally:
        for each in (beating, watching):
            each.cancel()
        await asyncio.wait({beating, watching})


class WorkerRun:
    """One worker's time with one rollout."""

    def __init__(
        self,
        line: RecorderClient,
        welcome: wire.Welcome,
        engine_url: str,
        gpus: Gpus,
        engines: EngineCache | None = None,
        store: WorkerStore = NO_STORE,
        workspace_was_on: str = "",
    ) -> None:
        self._workspace_was_on = workspace_was_on
        self._gpus = gpus
        self._store = store
        self._copies: SnapshotCopies | None = None
        self._engines = engines
        self._line = line
        self._welcome = welcome
        self._url = engine_url
        self._opened: list[Engine] = []
        line.replica_uses = self._replica_uses
        self._environment: Environment | None = None

    async def run(self) -> None:
        """Run, and say how it ended. Raises WorkerExit when it was told to go."""
        over = False
        try:
            await self._run_rollout()
            over = True
        except WorkerExit as leaving:
            over = leaving.reason in ("cancel", "ended")
            if leaving.reason == "cancel":
                await self._store_state("cancelled")
            if leaving.reason == "drain":
                await self._line.heartbeat_once()  # the time that an open step has taken is kept
            raise
        except LineRefused:  # nothing can be said any more; the rollout is another worker's
            raise
        except NeedsPerson as problem:  # it goes on with another worker
            log.error("the rollout waits: %s", problem)
            with contextlib.suppress(WorkerExit):
                paused = {"state": "paused", "by": "host", "reason": str(problem)}
                await self._line.store(wire.StoreState, **paused)
        except HoustonError as problem:
            log.error("the rollout fails: %s", problem)
            over = True
            await self._store_state("failed", str(problem))
        finally:
            await self._close(over)

    async def _run_rollout(self) -> None:
        line, welcome = self._line, self._welcome
        line.activity = "starting"
        await line.wait_at_safe_point()
        task = parse_task_record(welcome.spec.task)
        await wait_for_task_requirements(task, line)
        engine, settings = await wait_for_engine(welcome.spec, self._url, line, self._engines)
        self._opened.append(engine)
        self._environment = make_rollout_environment(welcome, task, engine.window, line, self._gpus)
        # A head is stored only after the world was made: from then on a missing one is an error.
        point("worker.open.before")
        bring_files = partial(bring_missing_files, self._store, welcome, task, line)
        begun, before = has_begun(welcome), self._workspace_was_on
        await open_environment(self._environment, line, begun, bring_files, before)
        point("worker.open.after")
        if self._store.owner and keeps_snapshots_here(task):
            spec = welcome.spec
            self._copies = SnapshotCopies(
                self._store, spec.rollout, Path(spec.host_root), partial(setattr, line, "trouble")
            )
        rollout = await build_agent_loop(
            line, welcome, engine, settings, self._environment, self._open_role_engine
        )
        reason = rollout.ended_reason() or await rollout.run()
        await rollout.agent.end()
        await self._store_state("finished", reason)
        point("worker.moved.after")

    async def _open_role_engine(self, role: SampleRole) -> tuple[Engine, Mapping[str, Any]]:
        spec = spec_of_role(self._welcome.spec, role)
        opened = await wait_for_engine(spec, "", self._line, self._engines, is_role_engine=True)
        self._opened.append(opened[0])
        return opened

    def _replica_uses(self) -> dict[str, wire.ReplicaUse]:
        """Engine with several servers → the one that this rollout keeps to."""
        uses = {}
        for engine in self._opened:
            take_replicas(engine, self._line.control.current)
            if isinstance(engine, ReplicatedEngine):
                uses[engine.name] = engine.use_of(self._welcome.spec.rollout)
        return {name: use for name, use in uses.items() if use is not None}

    async def _store_state(self, state: RolloutState, reason: str = "") -> None:
        with contextlib.suppress(WorkerExit):  # it has ended already, by another's word
            point("worker.moved.before")
            await self._line.store(wire.StoreState, state=state, reason=reason)

    async def _close(self, over: bool) -> None:
        """Close engines and environment; with the rollout over, its terminals end too."""
        if self._environment is not None:
            point("worker.close.before")
            await self._environment.close(over)
        if self._copies is not None:
            await self._copies.end()
        if self._opened:
            point("worker.close.after")
        for engine in self._opened:
            await (self._engines.release(engine) if self._engines else engine.close())


if __name__ == "__main__":
    sys.exit(main())
