"""The far end's doing: each thing that is asked, on the LocalHost of the rollout here.

It knows neither pipes nor numbers. Terminals are looked up by name each time, as a later far end
would have to.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
from platformdirs import user_state_path

from houston_daemon.hosts import freeing, limits
from houston_daemon.hosts.branching import Past
from houston_daemon.hosts.freeing import Freed
from houston_daemon.hosts.local import LocalHost
from houston_daemon.hosts.sandbox.probe import probe
from houston_daemon.hosts.sandbox.profile import Sandbox
from houston_daemon.hosts.ssh import messages as m
from houston_daemon.hosts.ssh import predecessor
from houston_daemon.hosts.ssh.reading import Reading
from houston_daemon.hosts.ssh.shelf import Shelf
from houston_daemon.hosts.terminals.terminal import LocalTerminal
from houston_daemon.hosts.user_secrets import secret_places
from houston_daemon.hosts.workspace import tenancy
from houston_shared import task
from houston_shared.errors import HoustonError

InTerminal = (
    m.RunIn | m.WaitFor | m.TypeInto | m.StatusOf | m.LinesOf | m.SignalTo | m.CloseTerminal
)
Service = Callable[[LocalHost, msgspec.Raw, asyncio.Event], Awaitable[Any]]
"""Answers `Other`; the event is set when the request was taken back."""


class Serving:
    """One rollout's part of this machine, for whoever is at the near end."""

    def __init__(self, services: Mapping[str, Callable[[LocalHost], Service]]) -> None:
        self._makers = dict(services)
        self._services: dict[str, Service] = {}
        self._host: LocalHost | None = None
        self._shelf: Shelf | None = None
        self._reading: Reading | None = None
        self._key = ""
        self._free: Callable[[bool], Awaitable[Freed]] | None = None

    async def hello(self, ask: m.Hello) -> m.Welcome:
        """Make the host; whoever served this rollout before, cut off, is ended first."""
        if ask.protocol != m.PROTOCOL:
            raise HoustonError(
                f"Houston {version('houston-agents')} there speaks protocol {m.PROTOCOL}, not "
                f"{ask.protocol}.",
                next="Install the same version of houston-agents on both machines.",
            )
        root = Path(ask.root).expanduser() if ask.root else user_state_path("houston") / ask.key
        shelf = Shelf(root.absolute(), ask.rollout)
        host = LocalHost(
            root,
            ask.rollout or "doctor",
            sandbox=ask.sandbox,
            network=ask.network,
            hidden=secret_places(),
            read=tuple(map(Path, ask.read)),
            devices=tuple(map(Path, ask.devices)),
            gpus=ask.gpus,
            environment=ask.environment,
            limits=_limits(ask),
            owner=ask.owner,
            activate=Path(ask.activate) if ask.activate else None,
            past=Past(*ask.past) if ask.past else None,
            apart=(shelf.place,),
        )
        trouble = ""
        if ask.reads:
            self._reading = Reading(host.folder)
        elif ask.rollout:
            await asyncio.to_thread(shelf.open)
            await asyncio.to_thread(predecessor.replace, root, ask.rollout, ask.key, ask.lease)
        else:
            trouble = await _trouble(ask)
        self._host, self._shelf, self._key = host, shelf, ask.key
        self._free = partial(_free, shelf, root.absolute(), ask)
        return m.Welcome(
            version=version("houston-agents"),
            workspace=str(host.workspace),
            inside=host.inside,
            trouble=trouble,
        )

    async def answer(self, ask: m.Asks, back: asyncio.Event) -> Any:
        """Do one thing. back: set when it was taken back. Raises what the host raises."""
        if isinstance(ask, m.Hello) and self._host is None:
            return await self.hello(ask)
        if self._host is None or self._shelf is None:
            raise HoustonError("The near side asked before it said hello.")
        if self._reading is not None:
            return await self._reading.answer(ask)
        return await self._answer(self._host, self._shelf, ask, back)

    async def _answer(self, host: LocalHost, shelf: Shelf, ask: m.Asks, back: asyncio.Event) -> Any:
        match ask:
            case m.Prepare():
                source = shelf.of(ask.source) if ask.source else None
                host.map_data({name: shelf.content(one) for name, one in ask.data.items()})
                return await host.prepare(source, ask.begun)
            case m.Present():
                return await host.present()
            case m.HasParcel():
                return await asyncio.to_thread(shelf.has, ask.name)
            case m.Piece():
                return await asyncio.to_thread(shelf.add, ask.name, ask.token, ask.data, ask.last)
            case m.Spawn():
                return await _spawn(host, shelf, ask, back)
            case m.NotBroughtBack():
                return await host.not_brought_back()
            case m.LimitsMet():
                return await host.limits_met()
            case m.TakeSnapshot():
                return await host.snapshots.take(ask.message, ask.hints, ask.mark, ask.since)
            case m.Restore():
                return await host.snapshots.restore(ask.commit, Path(ask.into))
            case m.Terminals():
                return await host.terminals()
            case m.DestroyTerminals():
                if not self._anothers(host):
                    await host.destroy_terminals()
                return None
            case m.Free() if self._free is not None:
                return await self._free(ask.snapshots)
            case m.Other():
                return await self._service(host, ask.service)(host, ask.body, back)
            case m.Ping():
                return None
            case m.FindTerminal():
                return await (await host.terminal(ask.name, ask.create)).status()
            case m.Hello():
                raise HoustonError("The near side said hello twice.")
            case m.Free() | m.Pack() | m.PartOf() | m.LogOf():
                raise HoustonError(f"{type(ask).__name__} is for who reads.")
            case _:
                return await _in_terminal(await host.terminal(ask.name), ask, back)

    def _anothers(self, host: LocalHost) -> bool:
        """Whether another home drives the rollout: one that is a copy ends nothing of it."""
        holder = tenancy.noted(host.folder)
        return bool(holder) and not holder.startswith(f"{self._key}:")

    def _service(self, host: LocalHost, name: str) -> Service:
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


async def _free(shelf: Shelf, root: Path, ask: m.Hello, snapshots: bool) -> Freed:
    """Free the rollout's part, and parcels that nobody needs then."""
    freed = await freeing.free(root, ask.rollout, ask.owner, snapshots)
    await asyncio.to_thread(shelf.sweep)
    if not freed.left:
        predecessor.forget(root, ask.rollout)
    return freed


async def _trouble(ask: m.Hello) -> str:
    """Why no rollout can work on this machine; empty when a trial worked."""
    if shutil.which("tmux") is None:
        return "It has no tmux, which terminals need."
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        trial = Sandbox(kind=ask.sandbox, workspace=place, home=place, temporary=place)
        return str(await probe(trial) or "")


async def _in_terminal(terminal: LocalTerminal, ask: InTerminal, back: asyncio.Event) -> Any:
    match ask:
        case m.RunIn():
            return await terminal.run(ask.command)
        case m.WaitFor():
            return await terminal.wait(ask.seconds, back)
        case m.TypeInto():
            return await terminal.type_text(ask.text)
        case m.StatusOf():
            return await terminal.status()
        case m.LinesOf():
            return await terminal.lines(ask.start, ask.end)
        case m.SignalTo():
            return await terminal.signal(ask.signal)
        case m.CloseTerminal():
            await terminal.close()
            return await terminal.status()


def _limits(ask: m.Hello) -> limits.Limits:
    mapped = task.Sandbox(
        processes=ask.processes,
        memory_mb=ask.memory_mb,
        shm_mb=ask.shm_mb,
        file_mb=ask.file_mb,
        workspace_mb=ask.workspace_mb,
    )
    return limits.limits(mapped, ask.together_mb)


async def _spawn(host: LocalHost, shelf: Shelf, ask: m.Spawn, back: asyncio.Event) -> Any:
    there = {near: str(shelf.of(name)) for near, name in ask.parcels.items()}
    return await host.spawn(
        [there.get(word, word) for word in ask.command],
        seconds=ask.seconds,
        writable=ask.writable,
        extra_read=[Path(place) for place in there.values()],
        environment=ask.environment,
        stop=back,
        output_limit=ask.output_limit,
        cwd=there.get(ask.cwd, ask.cwd),
        network=ask.network,
    )
