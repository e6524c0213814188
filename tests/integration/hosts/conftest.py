"""A real host of one rollout per test, with and without a sandbox; its terminals end with it."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from houston_daemon.hosts.host_protocol import TerminalStatus
from houston_daemon.hosts.local_host import LocalHost
from houston_daemon.hosts.terminals.local_terminal import LocalTerminal
from houston_daemon.hosts.terminals.tmux_server import TmuxServer, find_tmux_socket

MakeHost = Callable[..., LocalHost]


@pytest.fixture
async def make_host(tmp_path: Path) -> AsyncIterator[MakeHost]:
    """Makes hosts of one root; a second call with the same rollout is a restarted daemon."""
    made: list[LocalHost] = []

    def make(rollout: str = "r1", sandbox: str = "bubblewrap", **settings: object) -> LocalHost:
        settings.setdefault("network", False)
        settings.setdefault("hidden", ())
        host = LocalHost(tmp_path / "root", rollout, sandbox=sandbox, **settings)
        made.append(host)
        return host

    yield make
    for host in made:
        await host.destroy_terminals()
        await host.close()


@pytest.fixture
async def host(make_host: MakeHost) -> LocalHost:
    made = make_host()
    await made.prepare(None)
    return made


@pytest.fixture
async def terminal(host: LocalHost) -> LocalTerminal:
    return await host.terminal("main", create=True)


async def finish(
    terminal: LocalTerminal, command: str, seconds: float = 30
) -> tuple[TerminalStatus, list[str]]:
    """Run a command to its end; its status and the lines it printed."""
    start = await terminal.run(command)
    status = await terminal.wait(seconds, asyncio.Event())
    assert not status.busy, await terminal.lines(start)
    return status, await terminal.lines(start)


async def until(true: Callable[[], object]) -> None:
    """Wait until something is so; the limit only bounds a hanging test."""
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 what other processes do
            await asyncio.sleep(0.01)


async def runs(terminal: LocalTerminal, names: list[str]) -> None:
    """Wait until these programs run in the foreground, and no shell that is about to."""
    await until(lambda: [entry.name for entry in terminal._foreground(deep=False)] == names)


async def kill_tmux(host: LocalHost) -> None:
    """End the rollout's tmux server as the machine's memory killer would."""
    _, said = await TmuxServer(find_tmux_socket(host.folder / "terminals")).call(
        "display-message", "-p", "#{pid}"
    )
    os.kill(int(said), signal.SIGKILL)
