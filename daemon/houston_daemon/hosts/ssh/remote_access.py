"""Access to a rollout's part of another machine without its worker: reading it, or freeing it.

Reading disturbs nothing: the rollout may be running. Freeing comes last: no later worker is served.
"""

import asyncio
import contextlib
import logging
import os
import tarfile
import tempfile
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from houston_daemon.hosts.host_protocol import CleanupExtent, FreedSpace, HostAway
from houston_daemon.hosts.snapshots.snapshot_restore import folder_state, remove_begun
from houston_daemon.hosts.ssh import remote_part
from houston_daemon.hosts.ssh import ssh_protocol as m
from houston_daemon.hosts.ssh.remote_part import RemotePart
from houston_daemon.hosts.ssh.ssh_host import SshHost
from houston_shared.errors import HoustonError

log = logging.getLogger(__name__)


class RemoteCleaner:
    """Machines that are asked to clean up after rollouts; one that is away is asked once."""

    def __init__(self) -> None:
        self._unreachable_reasons: dict[RemotePart, str] = {}

    async def clean(
        self, remote: RemotePart, rollout: str, home: str, extent: CleanupExtent
    ) -> FreedSpace:
        """Clean up a rollout's part of a machine; where that cannot be, `left` says why."""
        reason = self._unreachable_reasons.get(remote)
        if reason is None:
            try:
                freed = await _ask_to_clean(remote, rollout, home, extent)
                left_reason = f"on {remote.host}: {freed.left}" if freed.left else ""
                return FreedSpace(freed.bytes, left_reason)
            except HostAway as error:
                reason = error.cause
                self._unreachable_reasons[remote] = reason
            except (HoustonError, OSError) as problem:
                cause = problem.cause if isinstance(problem, HoustonError) else f"{problem}."
                reason = f"On the host {remote.host}: {cause}"
                log.warning("on the host %s: %s", remote.host, problem)
        return FreedSpace(0, f"{reason} The files in {remote.folder(rollout)} stay.")


async def _ask_to_clean(
    remote: RemotePart, rollout: str, home: str, extent: CleanupExtent
) -> FreedSpace:
    """Have the far end call `clean_rollout`. Raises HoustonError and OSError."""
    # Who only ends processes drives nothing there and does not need the folder for itself.
    name = remote_part.name_home(Path(home)) if home else ""
    owner = "" if extent == "processes" else name
    hello = _make_hello(remote, rollout, home=name, owner=owner, lease=m.CLEANUP_LEASE)
    async with _connected_host(remote, hello) as host:
        if extent == "processes":
            await host.link.ask(m.DestroyTerminals(), idempotent=True)
            return FreedSpace(0)
        ask = m.Free(snapshots=extent == "snapshots")
        freed: FreedSpace = await host.link.ask(ask, FreedSpace, idempotent=True)
        return freed


async def restore_remote_workspace(
    remote: RemotePart, rollout: str, commit: str, destination: Path
) -> list[str]:
    """Make the folder `destination` what the workspace there was; the paths that it lacks.

    Raises HoustonError, also where the machine is away, and as `unpack_workspace` does; an
    `destination` that was not there, or empty, is so again.
    """
    before = folder_state(destination)
    try:
        return await _fetch_workspace(remote, rollout, commit, destination)
    except BaseException:
        remove_begun(destination, before)
        raise


async def _fetch_workspace(
    remote: RemotePart, rollout: str, commit: str, destination: Path
) -> list[str]:
    destination.parent.mkdir(parents=True, exist_ok=True)
    async with _connected_host(remote, _make_hello(remote, rollout, reads=True)) as host:
        workspace: m.PackedWorkspace = await _ask_host(
            host, m.Pack(commit=commit), m.PackedWorkspace
        )
        with tempfile.TemporaryFile(dir=destination.parent) as packed:
            while packed.tell() < workspace.size:
                part: bytes = await _ask_host(host, m.ReadPackedPart(at=packed.tell()), bytes)
                if not part:
                    raise HoustonError(f"The host {remote.host} sent less than it had packed.")
                packed.write(part)
            packed.seek(0, os.SEEK_SET)
            await asyncio.to_thread(unpack_workspace, packed, destination)
    return list(workspace.lost)


def unpack_workspace(packed: IO[bytes], destination: Path) -> None:
    """Unpack what another machine has sent; nothing leads out of `destination`.

    Raises OSError, and tarfile.TarError for what is no such file.
    """
    destination.mkdir(exist_ok=True)
    with tarfile.open(fileobj=packed) as tar:
        tar.extractall(destination, filter=_plain_member)


async def read_remote_log(
    remote: RemotePart, rollout: str, terminal: str, start: int, end: int
) -> AsyncIterator[bytes]:
    """Bytes of [start, end) of a terminal's log, as far as there are any. Raises HoustonError."""
    async with _connected_host(remote, _make_hello(remote, rollout, reads=True)) as host:
        while start < end:
            ask = m.ReadTerminalLog(name=terminal, start=start, end=end)
            part: bytes = await _ask_host(host, ask, bytes)
            if not part:
                return
            yield part
            start += len(part)


async def _ask_host(host: SshHost, ask: m.AnyHostRequest, kind: type[Any]) -> Any:
    """Errors of files there are no errors of files here. Raises HoustonError."""
    try:
        return await host.link.ask(ask, kind)
    except OSError as problem:
        raise HoustonError(f"On the host {host.name}: {problem.strerror}.") from problem


def _plain_member(member: tarfile.TarInfo, destination: str) -> tarfile.TarInfo | None:
    """Files, folders and links only, and theirs who unpacks them."""
    if not (member.isreg() or member.isdir() or member.issym()):
        return None
    owned = member.replace(uid=os.getuid(), gid=os.getgid(), uname="", gname="", deep=False)
    return tarfile.tar_filter(owned, destination)


def _make_hello(
    remote: RemotePart,
    rollout: str,
    *,
    home: str = "",
    owner: str = "",
    lease: int = 0,
    reads: bool = False,
) -> m.Hello:
    return m.Hello(
        version=version("houston-agents"),
        rollout=rollout,
        root=remote.settings.host_root,
        key=remote.key,
        home=home,
        owner=owner,
        lease=lease,
        reads=reads,
        sandbox="none",
        network=False,
    )


@contextlib.asynccontextmanager
async def _connected_host(remote: RemotePart, hello: m.Hello) -> AsyncIterator[SshHost]:
    host = SshHost(remote.host, remote.settings, hello)
    try:
        await host.look()
        yield host
    finally:
        await host.close()
