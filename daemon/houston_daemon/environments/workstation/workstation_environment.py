"""The workstation for the agent loop: checks a call, runs it, and gives a typed result.

Here it is built from a rollout's specification: hosts, state, actions.
"""

import asyncio
import contextlib
import errno
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import msgspec

from houston_daemon.environments import call_handling
from houston_daemon.environments.call_handling import finish, internal_failure, named_failure
from houston_daemon.environments.environment_protocol import (
    BudgetStatus,
    Closing,
    Stop,
    ToolSpec,
    Undo,
)
from houston_daemon.environments.environment_registry import EnvironmentSetup
from houston_daemon.environments.local_host_setup import local_host, task_variables
from houston_daemon.environments.retrieval.searcher import Searcher, make_searcher
from houston_daemon.environments.tool_arguments import Arguments, Bounds, Catalog, chosen_actions
from houston_daemon.environments.typed_observation import Failed, Observation
from houston_daemon.environments.workstation import (
    step_closing,
    system_actions,
    workstation_hosts,
)
from houston_daemon.environments.workstation.browse_actions import BrowseActions
from houston_daemon.environments.workstation.command_actions import CommandActions, CommandLimits
from houston_daemon.environments.workstation.command_observations import CommandOutput
from houston_daemon.environments.workstation.confined_paths import GONE, ConfinedFolder, PathRefused
from houston_daemon.environments.workstation.document_converter import Converter
from houston_daemon.environments.workstation.evaluator import Evaluation, Slots
from houston_daemon.environments.workstation.file_actions import FileActions
from houston_daemon.environments.workstation.media_endpoint import Endpoint
from houston_daemon.environments.workstation.page_view import PageStore
from houston_daemon.environments.workstation.parse_actions import ParseActions
from houston_daemon.environments.workstation.parse_sources import LocalDocuments
from houston_daemon.environments.workstation.remote_documents import RemoteDocuments
from houston_daemon.environments.workstation.remote_file_actions import RemoteFileActions
from houston_daemon.environments.workstation.search_actions import SearchActions
from houston_daemon.environments.workstation.session_jobs import SessionJobs
from houston_daemon.environments.workstation.session_records import SessionRecords
from houston_daemon.environments.workstation.step_closing import snapshot_within_step
from houston_daemon.environments.workstation.web_fetch import Fetcher
from houston_daemon.environments.workstation.web_page import PageCache
from houston_daemon.environments.workstation.workstation_hosts import (
    ALL_HOSTS,
    WorkstationHost,
    WorkstationHosts,
    with_host_argument,
    without_host_argument,
)
from houston_daemon.environments.workstation.workstation_state import StateFile, WorkstationState
from houston_daemon.environments.workstation_actions import (
    ACTIONS,
    CommandAction,
    SystemAction,
)
from houston_daemon.hosts.host_protocol import (
    HostAway,
    RolloutHost,
    TerminalBusy,
    TerminalDead,
    TerminalMissing,
)
from houston_daemon.hosts.local_host import LocalHost
from houston_daemon.hosts.resource_limits import LimitHit
from houston_daemon.hosts.rollout_workspace import BranchSnapshot, read_fetch_note
from houston_daemon.hosts.ssh import remote_part
from houston_daemon.hosts.ssh.ssh_command import decode_host_settings
from houston_daemon.hosts.ssh.ssh_host import SshHost
from houston_daemon.hosts.ssh.ssh_protocol import Hello
from houston_shared.config_sections import LOCAL_HOST, MultimodalSettings, WebBrowseSettings
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.faults import point
from houston_shared.records import EVALUATION_CALL, CallIntent, RolloutSpec, ToolCall, ToolResult
from houston_shared.task import LoadedTask, Task
from houston_shared.terminal_log_files import rollout_folder


def catalog(task: Task) -> Catalog:
    """The task's tools, on its hosts.

    Raises ConfigurationError when it names one that does not exist.
    """
    actions = chosen_actions(task, ACTIONS.values(), "the workstation")
    chosen = {name: with_host_argument(action, task.hosts) for name, action in actions.items()}
    # A task may keep `eval` from the agent; the loop scores it all the same.
    scoring = (
        {EVALUATION_CALL: ACTIONS[EVALUATION_CALL]}
        if task.evaluate.command and EVALUATION_CALL not in chosen
        else {}
    )
    return Catalog(chosen, _bounds(task), scoring)


def check_task(task: LoadedTask) -> None:
    """Raise ConfigurationError for tools that there are none of."""
    catalog(task.task)


def _bounds(task: Task) -> Bounds:
    """A model that decodes under the schema cannot ask for a longer sleep than the task allows."""
    longest = max(1, int(task.budget.sleep_seconds))
    return {"sleep": {"sleep_time": {"maximum": min(86_400, longest)}}}


_TOO_LARGE = 128 + signal.SIGXFSZ
"""What a shell says of a command that the kernel ended for the size of a file."""
_FILE = LimitHit("file size", "The command was ended: no single file may be that large.")
_REFUSED = LimitHit("file size", "No single file may be that large.")
_EFBIG = os.strerror(errno.EFBIG)


def workstation_result(
    call: ToolCall,
    observation: Observation,
    limit: int,
    seconds: float,
    limit_hits: Sequence[LimitHit] = (),
) -> ToolResult:
    """The result of `call`; see `call_handling.result`."""
    if isinstance(observation, CommandOutput) and not (observation.window or observation.running):
        limit_hits = (*limit_hits, *_file_size(observation))
    return call_handling.result(call, observation, limit, seconds, limit_hits)


def _file_size(observation: CommandOutput) -> list[LimitHit]:
    """Whether a command failed on the size of a file: ended by the kernel, or told so (Python)."""
    if observation.exit_code == _TOO_LARGE:
        return [_FILE]
    return [_REFUSED] if observation.exit_code and _EFBIG in observation.output else []


log = logging.getLogger(__name__)


class ActionFamily(Protocol):
    """Some actions and the doing of them."""

    actions: tuple[type[Arguments], ...]

    async def act(self, arguments: Arguments, stop: Stop) -> Observation:
        """Run one of its actions. Raises PathRefused and HoustonError, whose words are shown."""
        ...


_LONGEST_ERROR = 500
_BEFORE_FINISH = "Go on with the task, check and improve the result."
_FREEING = (
    "A large file that create_file replaces by an empty one frees its space; commands and"
    " snapshots need some."
)


class Workstation:
    """Terminals, files, an evaluator and patience, for one rollout.

    See `environment_protocol.Environment`.
    """

    brief = ""
    undo: Undo = "none"
    """Files come back from a snapshot; a shell's variables and running programs do not."""

    def __init__(
        self,
        task: Task,
        places: WorkstationHosts,
        state: StateFile,
        *,
        source: Path | None,
        evaluation: Evaluation,
        characters: int,
        families: Sequence[ActionFamily] = (),
        arrival: Callable[[], Awaitable[tuple[str, ...]]],
        local: RolloutHost | None = None,
    ) -> None:
        """arrival: what the agent is told with its first observation, once the world is made.
        local: this machine, where no host of the rollout is, for what must be done beside it.
        """
        self._task = task
        self._places = places
        self._local = local
        self._state = state
        self._source = source
        self._evaluation = evaluation
        self._characters = characters
        self._arrival = arrival
        self._families = {action: family for family in families for action in family.actions}
        self._catalog = catalog(task)
        self.tools: Sequence[ToolSpec] = self._catalog.tools

    async def open(self, begun: bool = False) -> None:
        """Make the world, or find it again; the first snapshot is the workspace as it was given.

        begun: the rollout has steps already. Raises HoustonError when its workspace is gone.
        """
        if self._local is not None:
            await self._local.prepare(None)
        for place in self._places:
            await place.host.prepare(self._source, begun)
        if not self._state.load():
            for place in self._places:
                begun_with = await place.host.snapshots.take("start", mark=True)
                place.state().told = begun_with.commit
            self._state.now.notes = await self._arrival()
            point("worker.world.before")
            await asyncio.to_thread(self._state.save)
        for place in self._places:
            place.sessions.open(place.commands.last_line)

    def check(self, call: ToolCall) -> ToolCall:
        """The call with its arguments validated (defaults filled in), or with `error` set."""
        return self._catalog.check(call)

    def deadline(self, call: ToolCall) -> float:
        """Unix time at which a sleep would end if it began now; 0 for other calls."""
        call = self._catalog.check(call)
        if call.error or call.name != "sleep":
            return 0.0
        return time.time() + self._sleep_seconds(call)

    async def act(self, call: ToolCall, budget_status: BudgetStatus, stop: Stop) -> ToolResult:
        """Run one call; see `environment_protocol.Environment.act`."""
        start_time = time.monotonic()
        call = self._catalog.check(call)
        self._places.hear(budget_status.step, call)
        self._state.now.closing = None
        observation = await self._observe(call, budget_status, stop)
        self._state.now.last_action = "think" if call.name == "think" else ""
        limit_hits = await self._places.take_limit_hits()
        return await asyncio.to_thread(self._result, call, observation, start_time, limit_hits)

    async def recover(
        self, intent: CallIntent, budget_status: BudgetStatus, stop: Stop
    ) -> ToolResult:
        """The result of a call that was about to run when the worker ended."""
        call = self._catalog.check(intent.call)
        if call.error:
            return await self.act(call, budget_status, stop)
        start_time = time.monotonic()
        self._places.hear(budget_status.step, call)
        self._state.now.closing = None
        observation: Observation
        if call.name == "sleep":
            observation = await system_actions.sleep_on(intent, self._sleep_seconds(call), stop)
        else:
            place = self._places.of(call.arguments)
            observation = await workstation_hosts.interrupted_observation(call, place)
        self._state.now.last_action = ""
        limit_hits = await self._places.take_limit_hits()
        return await asyncio.to_thread(self._result, call, observation, start_time, limit_hits)

    async def save_state(self, name: str) -> None:
        """Never asked: nothing here is taken back."""

    async def restore_state(self, name: str) -> None:
        """Never asked, as above."""

    async def close_step(self, step: int) -> Closing:
        """Take the step's snapshot and the terminals' spans; the same again for the same step."""
        closed = await step_closing.close_step(self._places, self._state.now, step)
        await asyncio.to_thread(self._state.save)
        return closed

    async def close(self, ended: bool) -> None:
        """Let go; with `ended`, also end the rollout's terminals."""
        for place in self._places:
            await place.sessions.close()
            if ended:
                await place.host.destroy_terminals()
            await place.host.close()
        if self._local is not None:
            await self._local.close()

    async def _observe(
        self, call: ToolCall, budget_status: BudgetStatus, stop: Stop
    ) -> Observation:
        if call.error:
            return Failed(error=call.error)
        place = self._places.of(call.arguments)
        try:
            return await self._do(call, budget_status, stop)
        except HostAway as problem:
            return await workstation_hosts.host_away_observation(call, place, problem)
        except TerminalMissing:
            name = call.arguments.get("session_id")
            return Failed(error=f"There is no session {name}; run_command opens one.")
        except (TerminalBusy, TerminalDead, PathRefused) as problem:
            return await self._failed(place, str(problem))
        except HoustonError as problem:
            return await self._failed(place, named_failure(call, problem))
        except OSError as problem:
            log.exception("%s", call.name)
            reason = problem.strerror or "no reason was given"
            return await self._failed(place, f"{call.name} failed: {reason}.")
        except Exception:  # noqa: BLE001 an exception in a tool is an observation
            return await self._failed(place, internal_failure(call, log))

    async def _failed(self, place: WorkstationHost, error: str) -> Failed:
        """Words for the agent: nothing of where the host keeps things."""
        with contextlib.suppress(HostAway):
            if not await place.host.present():
                return Failed(error=GONE)
        return Failed(error=workstation_hosts.hide_places(error, place.host)[:_LONGEST_ERROR])

    async def _do(self, call: ToolCall, budget_status: BudgetStatus, stop: Stop) -> Observation:
        arguments = without_host_argument(call.arguments, ACTIONS[call.name])
        place = self._places.of(call.arguments)
        if isinstance(arguments, CommandAction):
            if call.arguments.get("host") == ALL_HOSTS:
                return await workstation_hosts.act_on_all_hosts(list(self._places), arguments, stop)
            return await place.commands.act(arguments, stop)
        if isinstance(arguments, SystemAction):
            return await self._system(call, budget_status, stop)
        family = self._families.get(type(arguments), place.files)
        return await family.act(arguments, stop)

    async def _system(self, call: ToolCall, budget_status: BudgetStatus, stop: Stop) -> Observation:
        match call.name:
            case "think":
                return system_actions.think(self._state.now.last_action)
            case "sleep":
                running = await self._places.running()
                return await system_actions.sleep(self._sleep_seconds(call), stop, running)
            case "eval":
                return await self._evaluation.run(budget_status, stop)
            case _:
                return finish(budget_status, self._task.budget.minimum_steps, _BEFORE_FINISH)

    def _result(
        self,
        call: ToolCall,
        observation: Observation,
        start_time: float,
        limit_hits: Sequence[LimitHit],
    ) -> ToolResult:
        """Save what the call changed, then say what it found: also where the disk is full, for
        looking, freeing space and `finish` need none."""
        try:
            self._state.save()
        except OSError as problem:
            log.warning("the state is not saved: %s", problem)
            limit_hits = [*limit_hits, LimitHit("disk", f"{problem.strerror}. {_FREEING}")]
        seconds = round(time.monotonic() - start_time, 6)
        return workstation_result(call, observation, self._characters, seconds, limit_hits)

    def _sleep_seconds(self, call: ToolCall) -> float:
        return min(float(call.arguments["sleep_time"]), self._task.budget.sleep_seconds)


def make_hosts(setup: EnvironmentSetup, state: StateFile) -> WorkstationHosts:
    """The hosts of a rollout in the task's order; nothing is touched yet."""
    names = setup.task.hosts
    first, *other_hosts = (
        _workstation_host(setup, name, _state_of(state, name, name == names[0])) for name in names
    )
    return WorkstationHosts(first, *other_hosts)


def _state_of(state: StateFile, name: str, first: bool) -> Callable[[], WorkstationState]:
    if first:
        return lambda: state.now
    return lambda: state.now.beside.setdefault(name, WorkstationState())


def _workstation_host(
    setup: EnvironmentSetup, name: str, state: Callable[[], WorkstationState]
) -> WorkstationHost:
    spec, task, characters = setup.spec, setup.task, setup.characters
    host: LocalHost | SshHost
    files: FileActions | RemoteFileActions
    documents: LocalDocuments | RemoteDocuments
    if name == LOCAL_HOST:
        leased = setup.gpus.get(LOCAL_HOST, ())
        host = local_host(spec, task, setup.owner, branch_origin(spec, task, name), leased)
        files = FileActions(ConfinedFolder(host.workspace, host.inside), state, characters)
        documents = LocalDocuments(host, Converter(host))
    else:
        host = ssh_host(setup, name)
        files = RemoteFileActions(host, characters)
        documents = RemoteDocuments(host)
    budget = task.budget
    allowed = CommandLimits(budget.command_seconds, budget.input_silence_seconds, characters)
    sessions = SessionRecords(host, state, SessionJobs(name, state, setup.report_job))
    commands = CommandActions(host, sessions, allowed)
    return WorkstationHost(host, state, sessions, commands, files, documents)


def ssh_host(setup: EnvironmentSetup, name: str) -> SshHost:
    """Another machine as the task maps it."""
    spec, task, leased = setup.spec, setup.task, setup.gpus.get(name, ())
    mapped, settings = task.mapped, decode_host_settings(spec.hosts[name])
    before = branch_origin(spec, task, name)
    hello = Hello(
        version=version("houston-agents"),
        rollout=spec.rollout,
        root=settings.host_root,
        key=spec.host_key,
        owner=setup.owner_elsewhere,
        home=setup.owner_elsewhere,
        lease=setup.lease,
        sandbox=mapped.kind,
        network=mapped.network,
        read=mapped.read,
        devices=mapped.devices,
        gpus=mapped.gpus or bool(leased),
        environment=task_variables(task, leased),
        processes=mapped.processes,
        memory_mb=mapped.memory_mb,
        shm_mb=mapped.shm_mb,
        file_mb=mapped.file_mb,
        workspace_mb=mapped.workspace_mb,
        together_mb=settings.memory_mb,
        activate=_remote_environment(task.activate, name),
        past=None if before is None else (before.rollout, before.commit),
    )
    folder = Path(spec.task.folder)
    data = {mount: folder / path for mount, path in task.data.mounts.items()}
    note = remote_part.leftover_path(Path(spec.host_root), spec.rollout, name)
    return SshHost(name, settings, hello, data, note)


def _remote_environment(environment: str, host: str) -> str:
    """An environment to activate on another machine: it has to be there already."""
    if environment and not environment.startswith("/"):
        raise ConfigurationError(
            f"`activate` names {environment!r}, next to the task file, which is not on {host}.",
            next="Name the absolute path that the environment has on every host of the task.",
        )
    return environment


def branch_origin(spec: RolloutSpec, task: Task, host: str) -> BranchSnapshot | None:
    """Where a branch's workspace on a host comes from; None for a copy of the task's folder."""
    origin = spec.origin
    if origin is None:
        return None
    commit = origin.snapshot if host == task.hosts[0] else origin.snapshots.get(host, "")
    return BranchSnapshot(spec.parent, commit) if commit else None


async def workstation_arrival(spec: RolloutSpec, places: WorkstationHosts) -> tuple[str, ...]:
    """The lines for a branch, or for a rollout that continues with a workspace from a store; none
    for any other."""
    folder = rollout_folder(Path(spec.host_root), spec.rollout)
    fetched = read_fetch_note(folder / "workspace")
    if spec.origin is None and fetched is None:
        return ()
    if fetched is None:
        since, then = f"from after step {spec.parent_step} on", "that step"
    else:
        then = f"step {fetched.step}" if fetched.step else "the start"
        since, then = "from here on", f"{then}, and what was done to files since is not in it"
    notice = (
        f"[{since} this work goes on in a new place: the workspace is as it was after {then}, no"
        " session is open, the file window is closed, and nothing that was running then is running"
        " now]"
    )
    lost = [
        path if place is places.first else f"{place.host.name}:{path}"
        for place in places
        for path in await place.host.unrestored_paths()
    ]
    return notice, *call_handling.lost_files_text(lost)


def action_families(
    setup: EnvironmentSetup,
    hosts: WorkstationHosts,
    local: RolloutHost | None,
    state: Callable[[], WorkstationState],
) -> tuple[ActionFamily, ...]:
    """The families beyond terminals and files; nothing is touched before their first action.

    What the node offers them stands in `[tools]` of houston.toml. local: this machine, where the
    workspace is on another: pages come here.
    """
    spec, task, first = setup.spec, setup.task, hosts.first
    searcher = make_searcher(spec, task)
    media = msgspec.convert(spec.tool_settings.get("multimodal", {}), MultimodalSettings)
    endpoint = Endpoint(media, _environment_value(media.api_key_env))
    parse = ParseActions(first.documents, endpoint, first.files.write)
    browse = _browse_actions(setup, Converter(local or first.host), searcher, state)
    return parse, SearchActions(searcher), browse


def _browse_actions(
    setup: EnvironmentSetup,
    converter: Converter,
    searcher: Searcher,
    state: Callable[[], WorkstationState],
) -> BrowseActions:
    spec, task, root = setup.spec, setup.task, Path(setup.spec.host_root)
    settings = msgspec.convert(spec.tool_settings.get("browse", {}), WebBrowseSettings)
    private = task.browse.private_addresses
    folder = rollout_folder(root, spec.rollout)
    proxy = _environment_value(settings.proxy_env)
    return BrowseActions(
        Fetcher(settings, private=private, proxy=proxy, hosts=task.page_hosts),
        PageCache(
            root / "pages",
            seconds=settings.cache_seconds,
            megabytes=settings.cache_mb,
            scope=f"{private:d} {' '.join(task.page_hosts)}",
        ),
        PageStore(folder / "pages", state),
        converter,
        searcher,
        staging=folder / "staging",
        characters=setup.characters,
    )


def _environment_value(name: str) -> str:
    """The value of a variable that the configuration names; empty where it names none."""
    return os.environ.get(name, "") if name else ""


def build_environment(setup: EnvironmentSetup) -> Workstation:
    """A workstation on the task's hosts; nothing is touched before `open`."""
    spec, task, characters = setup.spec, setup.task, setup.characters
    root, folder = Path(spec.host_root), Path(spec.task.folder)
    state = StateFile(rollout_folder(root, spec.rollout) / "workstation.json")
    hosts = make_hosts(setup, state)
    local = None if LOCAL_HOST in task.hosts else local_host(spec, task, setup.owner)

    scored = hosts.of({"host": task.evaluate.host})

    async def before_evaluation() -> str:
        touched = scored.files.take_written_paths()
        return await snapshot_within_step(scored.host, scored.state(), touched, "evaluation")

    # Slots are held here: their files name the host that the evaluations run on.
    name = task.name if scored.host.name == LOCAL_HOST else f"{task.name}@{scored.host.name}"
    slots = Slots(root, name, task.evaluate.slots, setup.waiting_for_slot)
    return Workstation(
        task,
        hosts,
        state,
        source=folder / task.workspace.source if task.workspace.source else None,
        evaluation=Evaluation(scored.host, task, folder, slots, before_evaluation),
        characters=characters,
        families=action_families(setup, hosts, local, lambda: state.now),
        arrival=lambda: workstation_arrival(spec, hosts),
        local=local,
    )
