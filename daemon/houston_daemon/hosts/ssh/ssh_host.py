"""A machine reached over SSH as a host of one rollout: the local host there, asked from here.

Terminals, sandbox, limits and snapshots are those of `LocalHost` at the far end; this module only
carries questions and answers, and the folders that a process there must see. Why not a shell:
docs/decisions.md#the-far-side-is-our-own-process-not-a-shell.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from houston_daemon.hosts.host_protocol import HostAway, ProcessResult, Snapshot, TerminalStatus
from houston_daemon.hosts.resource_limits import LimitHit
from houston_daemon.hosts.ssh import file_bundles, remote_part
from houston_daemon.hosts.ssh import ssh_protocol as m
from houston_daemon.hosts.ssh.file_bundles import send_bundle, unreadable_folder
from houston_daemon.hosts.ssh.ssh_command import control_socket, ssh_command_line
from houston_daemon.hosts.ssh.ssh_connection import ConnectionCut, HostLink, SshSession
from houston_shared.config_sections import HostSettings as Settings
from houston_shared.errors import HoustonError

log = logging.getLogger(__name__)

HELLO_SECONDS = 30.0
"""Within which a far end answers to hello: it may have to end another one first."""
PREPARE_SECONDS = 120.0
"""Within which it finds again what a rollout has there."""


class SshHost:
    """One rollout's part of a machine over SSH; see `RolloutHost`."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        hello: m.Hello,
        data: Mapping[str, Path] | None = None,
        note: Path | None = None,
    ) -> None:
        """data: folders and files of this machine that are mapped there at `/data/NAME`.
        note: where it is noted here that the rollout has something there; see `left`.
        """
        self._note, self._settings = note, settings
        self.name = name
        self.workspace = Path("/workspace")
        """As the far end has it; known from the first connection on."""
        self.inside = "/workspace"
        self.link = HostLink(
            name,
            lambda: ssh_command_line(settings),
            self._begin,
            lambda: control_socket(settings),
        )
        self._hello = hello
        self._ready = False
        self._data = dict(data or {})
        self._mapped: dict[str, str] = {}
        self._welcome = m.HostWelcome(version="", workspace="", inside="")
        self._snapshots = SshSnapshots(self.link)

    async def prepare(self, source: Path | None, begun: bool = False) -> None:
        """Connect, and have the rollout's folders made there.

        begun: the rollout has steps; where the host is away it may come back later.
        Raises HostAway when a rollout that has not begun cannot reach the machine, and NeedsPerson
        where only a person can help there.
        """
        reason = await self.link.start()
        if reason and not begun:
            raise HostAway(self.name, reason, self.link.back)
        if reason:
            self._mapped = await asyncio.to_thread(self._names)
            self._ready = True
            if not self.link.up:
                return  # what has to be prepared is in its first words when it comes
        self._mapped = {name: await self._upload_bundle(path) for name, path in self._data.items()}
        parcel = await self._upload_bundle(source) if source is not None and not begun else ""
        if self._note is not None:
            leftover = remote_part.RemoteLeftover(
                host=self.name, settings=self._settings, hello=self._hello
            )
            await asyncio.to_thread(remote_part.write_leftover, self._note, leftover)
        await self.link.ask(
            m.Prepare(source=parcel, begun=begun, data=self._mapped), idempotent=True
        )
        self._ready = True

    def _names(self) -> dict[str, str]:
        try:
            return {name: file_bundles.bundle_name(path) for name, path in self._data.items()}
        except OSError as problem:
            raise unreadable_folder(problem, self.name) from problem

    async def present(self) -> bool:
        """Whether the workspace is there."""
        return bool(await self.link.ask(m.Present(), bool, idempotent=True))

    async def unrestored_paths(self) -> Sequence[str]:
        """Of a branch: paths of its past that its workspace there lacks."""
        paths: tuple[str, ...] = await self.link.ask(
            m.UnrestoredPaths(), tuple[str, ...], idempotent=True
        )
        return paths

    async def take_limit_hits(self) -> Sequence[LimitHit]:
        """Limits that the rollout's processes met since the last call."""
        hits: list[LimitHit] = await self.link.ask(
            m.TakeLimitHits(), list[LimitHit], idempotent=True
        )
        return hits

    async def terminal(self, name: str, create: bool = False) -> "SshTerminal":
        """Find or create a terminal. Raises TerminalMissing."""
        await self.link.ask(
            m.FindTerminal(name=name, create=create), TerminalStatus, idempotent=True
        )
        return SshTerminal(self.link, name)

    async def terminals(self) -> list[TerminalStatus]:
        """All terminals that were opened and not closed, by name."""
        statuses: list[TerminalStatus] = await self.link.ask(
            m.Terminals(), list[TerminalStatus], idempotent=True
        )
        return statuses

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
        """Run a process in a separate sandbox there.

        Folders of `extra_read` are on this machine: they are sent there first, and words of the
        command that name one become its path there. No workspace is copied there: a start that
        would need that is refused.
        """
        assert not copied, "rollout_start_checks refuses it"
        bundle_names = {str(folder): await self._upload_bundle(folder) for folder in extra_read}
        ask = m.Spawn(
            command=tuple(command),
            seconds=seconds,
            writable=writable,
            parcels=bundle_names,
            environment=dict(environment or {}),
            output_limit=output_limit,
            cwd=cwd,
            network=network,
        )
        result: ProcessResult = await self.link.ask(ask, ProcessResult, stop=stop)
        return result

    @property
    def snapshots(self) -> "SshSnapshots":
        """The rollout's shadow repository there."""
        return self._snapshots

    async def close(self) -> None:
        """Let go of the host; terminals go on."""
        await self.link.close()

    async def destroy_terminals(self) -> None:
        """End every terminal of the rollout; those that cannot be ended now stay noted."""
        try:
            await self.link.ask(m.DestroyTerminals(), idempotent=True)
        except HoustonError as problem:
            log.warning("terminals of %s are not ended yet: %s", self._hello.rollout, problem)
            return
        if self._note is not None:
            self._note.unlink(missing_ok=True)

    async def look(self) -> m.HostWelcome:
        """Connect, and return what the machine says of itself. Raises HostAway, NeedsPerson."""
        if reason := await self.link.start():
            raise HostAway(self.name, reason, self.link.back)
        return self._welcome

    async def _begin(self, session: SshSession) -> None:
        """The first words of a session: who we are, and the folders of a rollout under way."""
        answer = await _answer_within(HELLO_SECONDS, "hello", session.ask(self._hello))
        self._welcome = self.link.read(answer, m.HostWelcome)
        if self._welcome.version != version("houston-agents"):
            log.warning("host %s has houston-agents %s", self.name, self._welcome.version)
        self.workspace, self.inside = Path(self._welcome.workspace), self._welcome.inside
        if self._ready:
            await self._map_again(session)
            ask = m.Prepare(source="", begun=True, data=self._mapped)
            self.link.read(await _answer_within(PREPARE_SECONDS, "prepare", session.ask(ask)), None)

    async def _map_again(self, session: SshSession) -> None:
        """Have the data there that is missing: the machine may have been away when we began."""

        async def ask(request: m.AnyHostRequest, kind: Any) -> Any:
            return self.link.read(await session.ask(request), kind)

        for name, path in self._data.items():
            if not await ask(m.HasBundle(name=self._mapped[name]), bool):
                self._mapped[name] = await send_bundle(path, self.name, ask)

    async def _upload_bundle(self, folder: Path) -> str:
        async def ask(request: m.AnyHostRequest, kind: Any) -> Any:
            return await self.link.ask(request, kind, idempotent=isinstance(request, m.HasBundle))

        return await send_bundle(folder, self.name, ask)


async def _answer_within(
    seconds: float, name: str, answer: Coroutine[Any, Any, m.HostAnswer]
) -> m.HostAnswer:
    """The answer to a first word; a session is of no use before it. Raises ConnectionCut."""
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError:
        reason = f"no answer to {name} within {seconds:g} s; its disk may hang"
        raise ConnectionCut(reason) from None


class SshTerminal:
    """One terminal at the far end; see `HostTerminal`."""

    def __init__(self, link: HostLink, name: str) -> None:
        self.name = name
        self._link = link
        self._closed: TerminalStatus | None = None

    async def run(self, command: str) -> int:
        """Start `command`; its log offset at the start. Raises TerminalBusy, TerminalDead."""
        offset: int = await self._link.ask(m.RunInTerminal(name=self.name, command=command), int)
        return offset

    async def wait(self, seconds: float, stop: asyncio.Event) -> TerminalStatus:
        """Wait until the command ends, `seconds` pass or `stop` is set."""
        ask = m.WaitFor(name=self.name, seconds=seconds)
        return await self._status(ask, stop=stop)

    async def type_text(self, text: str) -> None:
        """Type into the foreground."""
        await self._link.ask(m.TypeText(name=self.name, text=text))

    async def status(self) -> TerminalStatus:
        """How the terminal stands now."""
        if self._closed is not None:
            return self._closed
        return await self._status(m.ReadTerminalStatus(name=self.name), idempotent=True)

    async def lines(self, start: int, end: int | None = None) -> list[str]:
        """The log between two byte offsets as screen lines."""
        ask = m.ReadTerminalLines(name=self.name, start=start, end=end)
        lines: list[str] = await self._link.ask(ask, list[str], idempotent=True)
        return lines

    async def signal(self, name: Literal["INT", "TERM", "KILL"]) -> list[str]:
        """Signal the foreground command's processes; returns their names."""
        ask = m.SignalTerminal(name=self.name, signal=name)
        names: list[str] = await self._link.ask(ask, list[str])
        return names

    async def close(self) -> None:
        """End the session and everything that runs in it; the log stays."""
        self._closed = await self._status(m.CloseTerminal(name=self.name))

    async def _status(self, ask: m.AnyHostRequest, **options: Any) -> TerminalStatus:
        status: TerminalStatus = await self._link.ask(ask, TerminalStatus, **options)
        return status


class SshSnapshots:
    """The shadow repository at the far end; see `Snapshots`."""

    def __init__(self, link: HostLink) -> None:
        self._link = link

    async def take(
        self, message: str, hints: Sequence[str] = (), mark: bool = False, since: str = ""
    ) -> Snapshot:
        """Record the workspace as it is."""
        ask = m.TakeSnapshot(message=message, hints=tuple(hints), mark=mark, since=since)
        snapshot: Snapshot = await self._link.ask(ask, Snapshot, idempotent=True)
        return snapshot
