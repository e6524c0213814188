"""Session actions: open, list, look at, clear, close and signal the rollout's terminals."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from houston_daemon.environments.arguments import Arguments
from houston_daemon.environments.observation import Observation
from houston_daemon.environments.protocol import Stop
from houston_daemon.environments.workstation.command import actions as args
from houston_daemon.environments.workstation.command.observations import (
    Idle,
    Killed,
    Session,
    SessionEntry,
    Sessions,
    Status,
)
from houston_daemon.environments.workstation.command.sessions import Sessions as Known
from houston_daemon.environments.workstation.command.sessions import shortened
from houston_daemon.hosts.protocol import Host

Doing = Callable[[Any, Stop], Awaitable[Observation]]


class SessionActions:
    """Actions on sessions that run no command."""

    def __init__(self, host: Host, known: Known) -> None:
        self._host = host
        self._known = known
        self.actions: Mapping[type[Arguments], Doing] = {
            args.CreateSession: self.create_session,
            args.ListSessions: self.list_sessions,
            args.GetSessionStatus: self.get_session_status,
            args.CheckSessionIdle: self.check_session_idle,
            args.ClearSessionBuffer: self.clear_session_buffer,
            args.CloseSession: self.close_session,
            args.CloseAllSessions: self.close_all_sessions,
            args.KillSessionProcesses: self.kill_session_processes,
        }

    async def create_session(self, call: args.CreateSession, _: Stop) -> Observation:
        """Open a terminal, or find it open already."""
        there = {one.name for one in await self._host.terminals() if one.alive}
        terminal = await self._host.terminal(call.session_id, create=True)
        self._known.note(await terminal.status())
        change = "found" if call.session_id in there else "created"
        return Session(session_id=call.session_id, change=change)

    async def list_sessions(self, _: args.ListSessions, __: Stop) -> Observation:
        """Every session and what it runs."""
        entries = [
            SessionEntry(
                session_id=one.name,
                is_alive=one.alive,
                running=one.busy,
                exit_code=one.exit_code,
                command=shortened(one.command),
                end=one.end,
            )
            for one in await self._host.terminals()
        ]
        return Sessions(sessions=tuple(entries))

    async def get_session_status(self, call: args.GetSessionStatus, _: Stop) -> Observation:
        """How a session stands."""
        status = await (await self._host.terminal(call.session_id)).status()
        silent = max(0.0, time.time() - status.last_output) if status.last_output else None
        return Status(
            session_id=status.name,
            is_alive=status.alive,
            running=status.busy,
            exit_code=status.exit_code,
            command=shortened(status.command),
            last_activity=status.last_output or None,
            silent_seconds=silent,
            output_bytes=status.log_bytes,
            end=status.end,
        )

    async def check_session_idle(self, call: args.CheckSessionIdle, _: Stop) -> Observation:
        """Whether a session runs nothing."""
        status = await (await self._host.terminal(call.session_id)).status()
        command = shortened(status.command) if status.busy else ""
        return Idle(session_id=status.name, is_idle=not status.busy, command=command)

    async def clear_session_buffer(self, call: args.ClearSessionBuffer, _: Stop) -> Observation:
        """Hide the output so far; the log keeps it."""
        status = await (await self._host.terminal(call.session_id)).status()
        self._known.hide(status)
        return Session(session_id=status.name, change="cleared")

    async def close_session(self, call: args.CloseSession, _: Stop) -> Observation:
        """End a session and what runs in it."""
        await self._close(call.session_id)
        return Session(session_id=call.session_id, change="closed", closed=(call.session_id,))

    async def close_all_sessions(self, _: args.CloseAllSessions, __: Stop) -> Observation:
        """End every session."""
        names = await self._names()
        for name in names:
            await self._close(name)
        return Session(session_id="", change="closed", closed=tuple(names))

    async def kill_session_processes(self, call: args.KillSessionProcesses, _: Stop) -> Observation:
        """Signal what runs in the foreground; the session stays."""
        terminal = await self._host.terminal(call.session_id)
        busy = (await terminal.status()).busy
        killed = await terminal.signal("KILL" if call.force else "TERM")
        status = self._known.note(await terminal.wait(1.0, asyncio.Event()))
        return Killed(
            session_id=call.session_id,
            signal_used="SIGKILL" if call.force else "SIGTERM",
            killed_processes=tuple(killed),
            running=status.busy,
            shell_interrupted=busy and not killed,
        )

    async def _names(self) -> list[str]:
        return [status.name for status in await self._host.terminals()]

    async def _close(self, name: str) -> None:
        terminal = await self._host.terminal(name)
        await terminal.close()
        self._known.closed(await terminal.status())
