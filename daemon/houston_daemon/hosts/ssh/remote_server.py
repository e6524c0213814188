"""The far end's work: runs each request on the rollout's LocalHost there, or reads without one.

First it ends an earlier process for the rollout, whose connection was cut, unless that one serves a
later worker or another home (`<root>/serving/<rollout>.json`). It knows neither pipes nor request
numbers. Terminals are looked up by name each time, as a later far end would have to.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import msgspec
from platformdirs import user_state_path

from houston_daemon.hosts import folder_lock, process_table, resource_limits, rollout_cleanup
from houston_daemon.hosts.host_files import try_lock
from houston_daemon.hosts.host_protocol import CleanupExtent, FreedSpace, NeedsPerson
from houston_daemon.hosts.local_host import LocalHost
from houston_daemon.hosts.process_table import ProcessKey
from houston_daemon.hosts.rollout_workspace import BranchSnapshot
from houston_daemon.hosts.sandbox.sandbox_profile import SandboxProfile, secret_paths
from houston_daemon.hosts.sandbox.sandboxed_process import probe_sandbox
from houston_daemon.hosts.snapshots.snapshot_restore import restore_snapshot
from houston_daemon.hosts.ssh import file_bundles
from houston_daemon.hosts.ssh import ssh_protocol as m
from houston_daemon.hosts.ssh.file_bundles import BundleCache
from houston_daemon.hosts.terminals.local_terminal import LocalTerminal
from houston_daemon.hosts.terminals.terminal_log import TerminalLog
from houston_shared import atomic_file, task, terminal_log_files
from houston_shared.errors import Busy, ExitCode, HoustonError

_END_SECONDS = 2.0
_HEARD_SECONDS = 20.0
"""How long another home's next word is waited for; it has one every five seconds."""
_SERVING_LOCK_SECONDS = 10.0


class _ServingNote(msgspec.Struct, frozen=True):
    pid: int
    started: int
    key: str
    lease: int
    home: str = ""
    """Empty from an earlier Houston. The file's time is when that home was last heard."""


def replace_previous_server(root: Path, ask: m.Hello) -> None:
    """End the process that served the rollout here before, and note this one.

    Raises HoustonError while it serves a later worker, NeedsPerson while it serves another home.
    """
    note = _note_file(root, ask.rollout)
    note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _serving_lock(note):
        before = _read_serving_note(note)
        if before is not None and before.pid != os.getpid():
            _require_replaceable(before, ask, note)
            _end_process(ProcessKey(before.pid, before.started))
        own = process_table.process_key(os.getpid())
        serving = _ServingNote(own.pid, own.started, ask.key, ask.lease, ask.home)
        atomic_file.write_atomically(note, msgspec.json.encode(serving), durable=False)


def forget_server(root: Path, rollout: str) -> None:
    """Remove the note of a rollout that has nothing here any more."""
    note = _note_file(root, rollout)
    note.unlink(missing_ok=True)
    note.with_suffix(".turn").unlink(missing_ok=True)


def _require_replaceable(before: _ServingNote, ask: m.Hello, note: Path) -> None:
    """Raise HoustonError where the process before is still needed."""
    process = ProcessKey(before.pid, before.started)
    if not process_table.is_alive(process):
        return
    homes_known = before.home and ask.home
    if (before.home != ask.home) if homes_known else (before.key != ask.key):
        if homes_known and not _is_heard(note, process):
            return  # its machine is gone: a home was moved, or its container has another name
        raise NeedsPerson(
            f"Another home is at work on {ask.rollout} there: {before.home or before.key}.",
            "Nothing was done there: two daemons would act in one workspace.",
            f"Cancel {ask.rollout} in that home; then: houston rollout resume {ask.rollout}",
            ExitCode.BUSY,
        )
    if before.lease > ask.lease:
        raise Busy(
            f"A later worker of {ask.rollout} is at work there"
            f" (lease {before.lease}, not {ask.lease}).",
            "Nothing was done there.",
        )


def _is_heard(note: Path, process: ProcessKey) -> bool:
    """Whether the home that a process serves says something, as it does every few seconds."""
    last, deadline = note.stat().st_mtime_ns, time.monotonic() + _HEARD_SECONDS
    while process_table.is_alive(process) and time.monotonic() < deadline:
        if note.stat().st_mtime_ns != last:
            return True
        time.sleep(0.1)
    return False


@contextlib.contextmanager
def _serving_lock(note: Path) -> Iterator[None]:
    """One at a time decides whom a rollout has here. Raises HoustonError after ten seconds."""
    descriptor = os.open(note.with_suffix(".turn"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not try_lock(descriptor, _SERVING_LOCK_SECONDS):
            raise HoustonError(f"Another process has held {note.stem} there for ten seconds.")
        yield
    finally:
        os.close(descriptor)


def _note_file(root: Path, rollout: str) -> Path:
    return root / "serving" / f"{rollout}.json"


def _touch(file: Path) -> None:
    with contextlib.suppress(OSError):  # gone, since the rollout ended, or a full disk
        os.utime(file)


def _read_serving_note(note: Path) -> _ServingNote | None:
    return atomic_file.read_json_file(note, _ServingNote)


def _end_process(key: ProcessKey) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not process_table.is_alive(key):
            return
        process_table.send_signal([key.pid], number)
        deadline = time.monotonic() + _END_SECONDS
        while process_table.is_alive(key) and time.monotonic() < deadline:
            time.sleep(0.02)


class RemoteReader:
    """One rollout's folder, for one reader."""

    def __init__(self, folder: Path) -> None:
        """folder: the rollout's own; a workspace is packed in it, where there is room for one."""
        self._folder = folder
        self._packed: IO[bytes] | None = None

    async def answer(self, ask: m.AnyHostRequest) -> Any:
        """Answer one request. Raises HoustonError and OSError."""
        match ask:
            case m.Pack():
                return await asyncio.to_thread(self._pack, ask.commit)
            case m.ReadPackedPart():
                return await asyncio.to_thread(self._part, ask.at)
            case m.ReadTerminalLog():
                return await asyncio.to_thread(self._log, ask)
            case m.Ping():
                return None
        raise HoustonError(f"The near side reads only, and asked for {type(ask).__name__}.")

    def close(self) -> None:
        """Free the disk space of a packed workspace."""
        if self._packed is not None:
            self._packed.close()
            self._packed = None

    def _pack(self, commit: str) -> m.PackedWorkspace:
        self.close()
        if not self._folder.is_dir():
            raise HoustonError(f"Nothing of {self._folder.name} is on that machine.")
        temporary_folder = Path(tempfile.mkdtemp(prefix="packing-", dir=self._folder))
        self._packed = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 `close` closes it
        try:
            into = temporary_folder / "workspace"
            lost = restore_snapshot(
                self._folder / "shadow", commit, into, self._folder / "workspace"
            )
            file_bundles.pack_bundle(into, self._packed)
        finally:
            shutil.rmtree(temporary_folder, ignore_errors=True)
        return m.PackedWorkspace(size=self._packed.tell(), lost=tuple(lost))

    def _part(self, at: int) -> bytes:
        if self._packed is None:
            raise HoustonError("The near side asked for a part before anything was packed.")
        self._packed.seek(at)
        return self._packed.read(file_bundles.PIECE_BYTES)

    def _log(self, ask: m.ReadTerminalLog) -> bytes:
        folder = self._folder / "terminals" / ask.name
        if not terminal_log_files.is_terminal_name(ask.name) or not folder.is_dir():
            raise HoustonError(f"No log of a terminal {ask.name!r} is on that machine.")
        return TerminalLog(folder).read(
            ask.start, min(ask.end, ask.start + file_bundles.PIECE_BYTES)
        )


TerminalAsk = (
    m.RunInTerminal
    | m.WaitFor
    | m.TypeText
    | m.ReadTerminalStatus
    | m.ReadTerminalLines
    | m.SignalTerminal
    | m.CloseTerminal
)
RemoteService = Callable[[LocalHost, msgspec.Raw, asyncio.Event], Awaitable[Any]]
"""Answers `Other`; the event is set when the request was taken back."""


class RemoteServer:
    """One rollout's part of this machine, for whoever is at the near end."""

    def __init__(self, services: Mapping[str, Callable[[LocalHost], RemoteService]]) -> None:
        self._makers = dict(services)
        self._services: dict[str, RemoteService] = {}
        self._host: LocalHost | None = None
        self._bundle_cache: BundleCache | None = None
        self._reading: RemoteReader | None = None
        self._hello: m.Hello | None = None
        self._free: Callable[[bool], Awaitable[FreedSpace]] | None = None
        self._noting: asyncio.Task[None] | None = None

    async def hello(self, ask: m.Hello) -> m.HostWelcome:
        """Make the host; a process that served this rollout before and was cut off is ended
        first."""
        if ask.protocol != m.PROTOCOL_VERSION:
            raise HoustonError(
                f"Houston {version('houston-agents')} there speaks protocol {m.PROTOCOL_VERSION},"
                f" not {ask.protocol}.",
                next="Install the same version of houston-agents on both machines.",
            )
        root = Path(ask.root).expanduser() if ask.root else user_state_path("houston") / ask.key
        shelf = BundleCache(root.absolute(), ask.rollout)
        host = _make_host(ask, root, shelf)
        trouble = ""
        if ask.reads:
            self._reading = RemoteReader(host.folder)
        elif ask.rollout:
            await asyncio.to_thread(shelf.open)
            await asyncio.to_thread(replace_previous_server, root, ask)
        else:
            trouble = await _probe_machine(ask)
        self._host, self._bundle_cache, self._hello = host, shelf, ask
        self._free = partial(_free_rollout_part, shelf, root.absolute(), ask)
        return m.HostWelcome(
            version=version("houston-agents"),
            workspace=str(host.workspace),
            inside=host.inside,
            trouble=trouble,
        )

    async def answer(self, ask: m.AnyHostRequest, back: asyncio.Event) -> Any:
        """Answer one request. back: set when it is cancelled. Raises what the host raises."""
        if isinstance(ask, m.Hello) and self._host is None:
            return await self.hello(ask)
        if self._host is None or self._bundle_cache is None:
            raise HoustonError("The near side asked before it said hello.")
        if self._reading is not None:
            return await self._reading.answer(ask)
        return await self._answer(self._host, self._bundle_cache, ask, back)

    async def _answer(
        self, host: LocalHost, shelf: BundleCache, ask: m.AnyHostRequest, back: asyncio.Event
    ) -> Any:
        match ask:
            case m.Prepare():
                source = shelf.path_of(ask.source) if ask.source else None
                host.map_data(
                    {name: shelf.content(name_there) for name, name_there in ask.data.items()}
                )
                return await host.prepare(source, ask.begun)
            case m.Present():
                return await host.present()
            case m.HasBundle():
                return await asyncio.to_thread(shelf.has, ask.name)
            case m.Piece():
                return await asyncio.to_thread(shelf.add, ask.name, ask.token, ask.data, ask.last)
            case m.Spawn():
                return await _spawn_process(host, shelf, ask, back)
            case m.UnrestoredPaths():
                return await host.unrestored_paths()
            case m.TakeLimitHits():
                return await host.take_limit_hits()
            case m.TakeSnapshot():
                return await host.snapshots.take(ask.message, ask.hints, ask.mark, ask.since)
            case m.Terminals():
                return await host.terminals()
            case m.DestroyTerminals():
                self._require_own(host)
                return await host.destroy_terminals()
            case m.Free():
                assert self._free is not None  # since hello
                return await self._free(ask.snapshots)
            case m.Other():
                return await self._service(host, ask.service)(host, ask.body, back)
            case m.Ping():
                self._note_heard(host)
                return None
            case m.FindTerminal():
                return await (await host.terminal(ask.name, ask.create)).status()
            case m.Hello():
                raise HoustonError("The near side said hello twice.")
            case m.Pack() | m.ReadPackedPart() | m.ReadTerminalLog():
                raise HoustonError(f"{type(ask).__name__} is for who reads.")
            case _:
                return await _answer_terminal(await host.terminal(ask.name), ask, back)

    def _note_heard(self, host: LocalHost) -> None:
        """Note beside the rollout's folder that its home is there. Not waited for: a disk that
        stalls must not look like a far end that has gone."""
        if self._noting is None or self._noting.done():
            note = _note_file(host.folder.parents[1], host.folder.name)
            self._noting = asyncio.create_task(asyncio.to_thread(_touch, note))

    def _require_own(self, host: LocalHost) -> None:
        """Raise HoustonError where another home drives the rollout: a copy ends nothing of it."""
        assert self._hello is not None  # since hello
        holder, home = folder_lock.read_holder(host.folder), self._hello.home
        same = holder == home if home else holder.startswith(f"{self._hello.key}:")
        if holder and not same:
            rollout = self._hello.rollout
            raise Busy(
                f"The processes of {rollout} there belong to another home: {holder}.",
                "They continue to run.",
                f"If that home is gone or was moved: houston rollout clean {rollout}",
            )

    def _service(self, host: LocalHost, name: str) -> RemoteService:
        if name not in self._services:
            if name not in self._makers:
                raise HoustonError(f"The far side has no service {name!r}.")
            self._services[name] = self._makers[name](host)
        return self._services[name]

    async def close(self) -> None:
        """Let go; terminals go on."""
        if self._reading is not None:
            self._reading.close()
        if self._host is not None:
            await self._host.close()


async def _free_rollout_part(
    shelf: BundleCache, root: Path, ask: m.Hello, snapshots: bool
) -> FreedSpace:
    """Free the rollout's part, and parcels that nobody needs then."""
    extent: CleanupExtent = "snapshots" if snapshots else "files"
    freed = await rollout_cleanup.clean_rollout(root, ask.rollout, ask.owner, extent)
    await asyncio.to_thread(shelf.remove_unneeded)
    if not freed.left:
        forget_server(root, ask.rollout)
    return freed


async def _probe_machine(ask: m.Hello) -> str:
    """Why no rollout can work on this machine; empty when a trial worked."""
    if shutil.which("tmux") is None:
        return "It has no tmux, which terminals need."
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        trial = SandboxProfile(kind=ask.sandbox, workspace=place, home=place, temporary=place)
        return str(await probe_sandbox(trial) or "")


async def _answer_terminal(terminal: LocalTerminal, ask: TerminalAsk, back: asyncio.Event) -> Any:
    match ask:
        case m.RunInTerminal():
            return await terminal.run(ask.command)
        case m.WaitFor():
            return await terminal.wait(ask.seconds, back)
        case m.TypeText():
            return await terminal.type_text(ask.text)
        case m.ReadTerminalStatus():
            return await terminal.status()
        case m.ReadTerminalLines():
            return await terminal.lines(ask.start, ask.end)
        case m.SignalTerminal():
            return await terminal.signal(ask.signal)
        case m.CloseTerminal():
            await terminal.close()
            return await terminal.status()


def _make_host(ask: m.Hello, root: Path, shelf: BundleCache) -> LocalHost:
    """The rollout's part of this machine, as the near side asks for it."""
    return LocalHost(
        root,
        ask.rollout or "doctor",
        sandbox=ask.sandbox,
        network=ask.network,
        hidden=secret_paths(),
        read=tuple(map(Path, ask.read)),
        devices=tuple(map(Path, ask.devices)),
        gpus=ask.gpus,
        environment=ask.environment,
        limits=_requested_limits(ask),
        owner=ask.owner,
        activate=Path(ask.activate) if ask.activate else None,
        past=BranchSnapshot(*ask.past) if ask.past else None,
        apart=(shelf.place,),
    )


def _requested_limits(ask: m.Hello) -> resource_limits.ResourceLimits:
    mapped = task.SandboxSettings(
        processes=ask.processes,
        memory_mb=ask.memory_mb,
        shm_mb=ask.shm_mb,
        file_mb=ask.file_mb,
        workspace_mb=ask.workspace_mb,
    )
    return resource_limits.compute_resource_limits(mapped, ask.together_mb)


async def _spawn_process(
    host: LocalHost, shelf: BundleCache, ask: m.Spawn, back: asyncio.Event
) -> Any:
    places = {near: str(shelf.path_of(name)) for near, name in ask.parcels.items()}
    return await host.spawn(
        [places.get(word, word) for word in ask.command],
        seconds=ask.seconds,
        writable=ask.writable,
        extra_read=[Path(place) for place in places.values()],
        environment=ask.environment,
        stop=back,
        output_limit=ask.output_limit,
        cwd=places.get(ask.cwd, ask.cwd),
        network=ask.network,
    )
