"""This machine as a host of one rollout: its folders, terminals, sandboxed processes, snapshots.

Layout: `<root>/rollouts/<rollout>/` with `workspace/`, `shadow/`, `terminals/`, `private/` (the
sandbox's own home and /tmp, shared by the rollout's terminals), and `image/` where the task has
one; `<root>/prepared/<rollout>` notes that the workspace was made, `<root>/limits/<rollout>.json`
its control groups. None of this belongs to the daemon: a later LocalHost of the same root and
rollout finds what an earlier one left.
"""

import asyncio
import logging
import re
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from houston_daemon.hosts import (
    folder_lock,
    limit_setup,
    process_table,
    rollout_workspace,
    untrusted_files,
)
from houston_daemon.hosts.folder_lock import RolloutFolderLock
from houston_daemon.hosts.guard import control_groups
from houston_daemon.hosts.guard.limit_guard import LimitGuard
from houston_daemon.hosts.host_protocol import (
    HostRootMissing,
    ProcessResult,
    TerminalMissing,
    TerminalStatus,
    WorkspaceGone,
)
from houston_daemon.hosts.process_table import MARK_VARIABLE
from houston_daemon.hosts.resource_limits import LimitHit, ResourceLimits
from houston_daemon.hosts.rollout_workspace import BranchSnapshot
from houston_daemon.hosts.sandbox import image_files, process_enclosure, sandboxed_process
from houston_daemon.hosts.sandbox.process_enclosure import Enclosure
from houston_daemon.hosts.sandbox.sandbox_profile import COMMANDS_INSIDE, SandboxProfile
from houston_daemon.hosts.sandbox.sandboxed_process import probe_sandbox
from houston_daemon.hosts.snapshots.shadow_repository import ShadowRepository
from houston_daemon.hosts.terminals import terminal_start
from houston_daemon.hosts.terminals.local_terminal import LocalTerminal
from houston_daemon.hosts.terminals.terminal_log import TerminalLog
from houston_daemon.hosts.terminals.tmux_server import TmuxServer, find_tmux_socket
from houston_shared.errors import HoustonError
from houston_shared.terminal_log_files import rollout_folder, socket_note, terminals_folder

log = logging.getLogger(__name__)

_UNLIMITED = ResourceLimits(processes=0)
_MAX_TASKS_BY_TERMINAL = 256
"""Processes and threads above which all are ended at once, before terminals one by one."""
_TERMINAL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


class LocalHost:
    """One rollout's part of this machine; see `RolloutHost`."""

    def __init__(
        self,
        root: Path,
        rollout: str,
        *,
        sandbox: Literal["bubblewrap", "none"],
        network: bool,
        hidden: tuple[Path, ...],
        read: tuple[Path, ...] = (),
        devices: tuple[Path, ...] = (),
        gpus: bool = False,
        environment: Mapping[str, str] | None = None,
        limits: ResourceLimits = _UNLIMITED,
        owner: str = "",
        past: BranchSnapshot | None = None,
        data: Mapping[str, Path] | None = None,
        activate: Path | None = None,
        apart: tuple[Path, ...] = (),
        image: Path | None = None,
        workdir: str = "",
    ) -> None:
        """owner: the home whose rollout it is; see `folder_lock`. past: where a branch began.

        image: a file with an image's files; workdir: see `SandboxProfile`.
        """
        self._branch = past
        self.name = "local"
        self.folder = rollout_folder(root.absolute(), rollout)
        self._owner, self._folder_lock = owner, RolloutFolderLock(self.folder, owner)
        self.workspace = self.folder / "workspace"
        self.sandbox = SandboxProfile(
            kind=sandbox,
            workspace=self.workspace,
            home=self.folder / "private" / "home",
            temporary=self.folder / "private" / "tmp",
            network=network,
            hidden=(*hidden, root.absolute()),
            read=read,
            devices=devices,
            gpus=gpus,
            environment=dict(environment or {}),
            data=dict(data or {}),
            activate=activate,
            apart=apart,
            image=None if image is None else self.folder / "image",
            workdir=workdir,
            shared_bytes=limits.shared,
        )
        self._image_file = image
        self.inside = self.sandbox.inside
        """The workspace's path as the agent sees it: /workspace, or another that the task names;
        the real one without sandbox."""
        self._root, self._limits = root.absolute(), limits
        self._note = self._root / "prepared" / rollout
        self._groups_note = limit_setup.limits_note(self._root, rollout)
        self._guard: LimitGuard | None = None
        self._guard_task: asyncio.Task[None] | None = None
        self._guard_lock = asyncio.Lock()
        self._terminals: dict[str, LocalTerminal] = {}
        self._terminals_folder = terminals_folder(root.absolute(), rollout)
        self._terminals_lock = asyncio.Lock()
        self._snapshots = ShadowRepository(self.workspace, self.folder / "shadow")

    def map_data(self, data: Mapping[str, Path]) -> None:
        """Show a folder read-only at `/data/NAME`; called before `prepare`."""
        self.sandbox = replace(self.sandbox, data=dict(data))

    async def prepare(self, source: Path | None, begun: bool = False) -> None:
        """Make the rollout's folders; copy `source` into the workspace the first time only.

        begun: the rollout has steps already, so there must be a workspace.
        Raises HoustonError when the sandbox does not work here or `source` cannot be copied, and
        NeedsPerson when the workspace was made once and is gone, or another home drives it.
        """
        if begun and not self.workspace.exists():
            raise WorkspaceGone(self.workspace)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.folder.chmod(0o700)
        except OSError as problem:
            raise HostRootMissing(self.folder, problem) from problem
        await self._take_folder()
        fill = None if self._branch is None else self._fill_from_branch
        await asyncio.to_thread(
            rollout_workspace.make_workspace, source, self.workspace, self._note, begun, fill
        )
        for path in (self.sandbox.home, self.sandbox.temporary, self._terminals_folder):
            path.mkdir(parents=True, exist_ok=True)
        if self._image_file is not None and self.sandbox.image is not None:
            await asyncio.to_thread(image_files.unpack_image, self._image_file, self.sandbox.image)
        trouble = await probe_sandbox(self.sandbox, await self._open_enclosure())
        if trouble is not None:
            raise trouble

    async def _take_folder(self) -> None:
        """Hold the rollout's folder. Raises RolloutHeldElsewhere."""
        before = await asyncio.to_thread(self._folder_lock.acquire)
        if before and self.sandbox.would_show(Path(self._owner)):
            await self._end_processes()  # that home was hidden from them, and not this one
        await asyncio.to_thread(self._folder_lock.note_home)

    async def present(self) -> bool:
        """Whether the workspace is there: somebody outside may have removed it."""
        return await asyncio.to_thread(self.workspace.is_dir)

    def _fill_from_branch(self) -> None:
        assert self._branch is not None
        rollout_workspace.fill_branch_workspace(self._branch, self._root, self.workspace)

    async def unrestored_paths(self) -> Sequence[str]:
        """Of a branch: paths of its past that its workspace lacks."""
        return await asyncio.to_thread(rollout_workspace.paths_not_restored, self.workspace)

    async def take_limit_hits(self) -> list[LimitHit]:
        """Limits that the rollout's processes met since the last call."""
        return [] if self._guard is None else await asyncio.to_thread(self._guard.take_hits)

    async def terminal(self, name: str, create: bool = False) -> LocalTerminal:
        """Find a terminal, also one of an earlier process, or open it.

        With `create`, a terminal whose shell has ended gets a new shell; its log goes on.
        Raises TerminalMissing, and HoustonError for a name that no terminal can have.
        """
        if not _TERMINAL_NAME.fullmatch(name):
            raise HoustonError(
                f"{name!r} cannot name a terminal.",
                next="Use up to 64 letters, digits, _ and -, not starting with -.",
            )
        async with self._terminals_lock:
            terminal = await self._find_terminal(name)
            if terminal is not None and not (create and not (await terminal.status()).alive):
                return terminal
            if not create:
                raise TerminalMissing(name)
            if terminal is not None:
                await terminal.end_processes()
            return await self._open_terminal(name)

    async def terminals(self) -> list[TerminalStatus]:
        """All terminals that were opened and not closed, by name."""
        folder = self._terminals_folder
        names = sorted(path.parent.name for path in folder.glob("*/state.json"))
        opened = [await self._find_terminal(name) for name in names]
        return [await terminal.status() for terminal in opened if terminal is not None]

    async def enclosed(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> list[str]:
        """The argument list of a process that its caller starts once, talks to, and ends.

        It is enclosed like a terminal, in the rollout's network, and dies with its parent.
        """
        enclosure = await self._open_enclosure()
        return await asyncio.to_thread(
            self.sandbox.wrap,
            command,
            enclosure=enclosure,
            joining=await self._network_join(enclosure),
            environment={
                **(environment or {}),
                MARK_VARIABLE: rollout_workspace.read_mark(self._note),
            },
            dies_with_parent=True,
        )

    async def spawn(
        self,
        command: Sequence[str],
        *,
        seconds: float,
        writable: bool = True,
        extra_read: Sequence[Path] = (),
        environment: Mapping[str, str] | None = None,
        stop: asyncio.Event | None = None,
        output_limit: int = 4_000_000,
        cwd: str = "",
        network: bool = True,
        copied: bool = False,
    ) -> ProcessResult:
        """Run a process in a sandbox of its own; see `RolloutHost.spawn`.

        cwd: a path as the process sees it; by default the workspace, or the scratch folder when
        not `writable`. An evaluator sees `extra_read` at their own paths, read-only.
        """
        sandbox = self.sandbox if network else replace(self.sandbox, network=False)
        secret = secrets.token_hex(16)
        values = {**(environment or {}), sandboxed_process.RUN_TOKEN_VARIABLE: secret}
        own_folders: list[Path] = []
        scratch: Path | None = None
        if not writable:
            scratch = self._make_private_folder("scratch-", own_folders)
        if not writable and not copied:  # a look at the files, with this machine's programs
            sandbox = replace(sandbox, image=None)
        try:
            if copied:
                folder = self._make_private_folder("copy-", own_folders)
                sandbox = await asyncio.to_thread(image_files.copy_sandbox, sandbox, folder)
            enclosure = await self._open_enclosure()
            argv = await asyncio.to_thread(
                sandbox.wrap,
                command,
                enclosure=enclosure,
                joining=await self._network_join(enclosure) if writable and network else (),
                environment=values,
                scratch=scratch,
                changeable=copied,
                extra_read=[path.absolute() for path in extra_read],
                cwd=cwd,
                dies_with_parent=True,
            )
            return await sandboxed_process.run_to_end(
                argv, token=secret, seconds=seconds, stop=stop, output_limit=output_limit
            )
        finally:
            for folder in own_folders:
                await asyncio.to_thread(_remove_leftovers, folder)

    def _make_private_folder(self, prefix: str, made: list[Path]) -> Path:
        """A new folder that no session sees, noted in `made`."""
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=self.folder / "private"))
        made.append(folder)
        return folder

    @property
    def snapshots(self) -> ShadowRepository:
        """The rollout's shadow repository."""
        return self._snapshots

    async def close(self) -> None:
        """Let go of the host; terminals go on, within what the kernel limits."""
        await self._stop_guard()
        for terminal in self._terminals.values():
            terminal.release()
        self._terminals.clear()
        await self._snapshots.close()
        self._folder_lock.release()

    async def destroy_terminals(self) -> None:
        """End every terminal of the rollout, and its tmux server; another home may have it next.

        Does nothing while another home drives the rollout.
        """
        if self._folder_lock.is_held_elsewhere:
            return
        await self._stop_guard()
        groups = control_groups.find_groups(self._groups_note)
        if groups is not None and groups.tasks() > _MAX_TASKS_BY_TERMINAL:
            await asyncio.to_thread(groups.end_processes)
        for path in self._terminals_folder.glob("*/state.json"):
            try:
                terminal = await self._find_terminal(path.parent.name)
                if terminal is not None:
                    await terminal.close()
            except OSError as problem:  # such as a full disk: it ends all the same, with the server
                log.warning("the end of terminal %s is not noted: %s", path.parent.name, problem)
        self._terminals.clear()
        await self._end_processes()
        await asyncio.to_thread(folder_lock.clear_holder, self.folder)

    async def _end_processes(self) -> None:
        """End all that runs of the rollout; its terminals stay noted, without a shell."""
        folder = self._terminals_folder
        groups = control_groups.find_groups(self._groups_note)
        if socket_note(folder).exists():
            await TmuxServer(find_tmux_socket(folder)).call("kill-server")
        # Also where the opening was cut off, or somebody has removed the rollout's folder.
        if mark := rollout_workspace.read_mark(self._note):
            await asyncio.to_thread(process_table.kill_all_marked, mark)
        if groups is not None:
            await asyncio.to_thread(groups.end)
        self._groups_note.with_suffix(".network").unlink(missing_ok=True)

    async def _open_enclosure(self) -> Enclosure:
        """Have the limits at work; what every process is started through."""
        async with self._guard_lock:
            if self._guard is None:
                mark = rollout_workspace.read_mark(self._note)
                own = [self.workspace, self.sandbox.home, self.sandbox.temporary]
                own += [self.sandbox.image] if self.sandbox.image else []
                self._guard = await asyncio.to_thread(
                    limit_setup.open_guard,
                    self._groups_note,
                    mark,
                    self._limits,
                    self._terminals_folder,
                    tuple(own),
                )
                self._guard_task = asyncio.create_task(self._guard.watch(), name="limits")
            groups = self._guard.groups
            return await asyncio.to_thread(
                limit_setup.make_enclosure, groups, self._limits, self._root
            )

    async def _network_join(self, enclosure: Enclosure) -> list[str]:
        """How a session comes into the rollout's network; empty where each has its own."""
        if self.sandbox.network or self.sandbox.kind == "none":
            return []
        note = self._groups_note.with_suffix(".network")
        mark = rollout_workspace.read_mark(self._note)
        within = replace(enclosure, filter=None)
        async with self._guard_lock:
            return await asyncio.to_thread(
                process_enclosure.network_join_command, note, mark, self.sandbox.bare(), within
            )

    async def _stop_guard(self) -> None:
        if self._guard_task is not None:
            self._guard_task.cancel()
            await asyncio.gather(self._guard_task, return_exceptions=True)
        self._guard = self._guard_task = None

    async def _find_terminal(self, name: str) -> LocalTerminal | None:
        terminal = self._terminals.get(name)
        if terminal is not None:
            return None if terminal.state.closed else terminal
        folder = self._terminals_folder / name
        state = terminal_start.load_terminal_state(folder)
        if state is None or state.closed:
            return None
        terminal = LocalTerminal(folder, self._tmux(), state, self._command_path(folder))
        await terminal.settle()
        self._terminals[name] = terminal
        return terminal

    async def _open_terminal(self, name: str) -> LocalTerminal:
        folder = self._terminals_folder / name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        tmux = self._tmux()
        log = TerminalLog(folder)
        enclosure = await self._open_enclosure()
        launch = partial(self._launch, enclosure, await self._network_join(enclosure))
        state = await terminal_start.start_terminal(name, folder, tmux, log, launch)
        opened = LocalTerminal(folder, tmux, state, self._command_path(folder))
        self._terminals[name] = opened
        return opened

    def _launch(
        self, enclosure: Enclosure, joining: list[str], commands: Path, shell: str, token: str
    ) -> list[str]:
        marked = {"HOUSTON_TERMINAL": token, MARK_VARIABLE: rollout_workspace.read_mark(self._note)}
        if self.sandbox.kind == "none":
            return self.sandbox.wrap(
                ["/bin/bash", "-c", shell], environment=marked, enclosure=enclosure
            )
        inner = ["script", "-e", "-q", "-c", shell, "/dev/null"]
        return self.sandbox.wrap(
            inner, environment=marked, commands=commands, enclosure=enclosure, joining=joining
        )

    def _command_path(self, folder: Path) -> str:
        if self.sandbox.kind == "none":
            return str(folder / "commands" / "command")
        return f"{COMMANDS_INSIDE}/command"

    def _tmux(self) -> TmuxServer:
        place = find_tmux_socket(self._terminals_folder)
        return TmuxServer(place, rollout_workspace.read_mark(self._note))


def _remove_leftovers(folder: Path) -> None:
    """Remove what an evaluator left; its result counts even where something would not go."""
    try:
        untrusted_files.remove_folder(folder)
    except OSError:
        log.exception("%s could not be removed", folder)
