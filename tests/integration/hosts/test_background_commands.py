"""What a command leaves running apart: that it runs, that it has ended, and how."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from houston_daemon.hosts.host_protocol import BackgroundCommand
from houston_daemon.hosts.local_host import LocalHost
from houston_daemon.hosts.terminals.background_commands import KEPT_COMMANDS
from houston_daemon.hosts.terminals.local_terminal import LocalTerminal
from houston_shared.terminal_log_files import read_job_line

from .conftest import MakeHost, finish

GO = "until [ -e go ]; do sleep 0.02; done"


@pytest.fixture(params=["bubblewrap", "none"])
async def either(request: pytest.FixtureRequest, make_host: MakeHost) -> LocalTerminal:
    host = make_host(sandbox=request.param)
    await host.prepare(None)
    return await host.terminal("main", create=True)


Background = tuple[BackgroundCommand, ...]


async def seen(terminal: LocalTerminal, so: Callable[[Background], bool]) -> Background:
    """What was started apart, once `so` holds of it; the limit only bounds a hanging test."""
    async with asyncio.timeout(60):
        while not so(found := (await terminal.status()).background):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return found


def ended(background: Background) -> bool:
    return all(command.ended for command in background)


def workspace(terminal: LocalTerminal) -> Path:
    return terminal.folder.parent.parent / "workspace"


ENDS = {
    "it is well": (f"({GO}; true) &", [0]),
    "it fails": (f"({GO}; exit 3) &", [3]),
    "nohup": (f"nohup bash -c '{GO}; exit 4' > out.log 2>&1 &", [4]),
    "it is killed": (f"bash -c '{GO}; kill -9 $$' &", [137]),
    "it is terminated": (f"bash -c '{GO}; kill $$' &", [143]),
    "two at once": (f"({GO}; exit 5) & ({GO}; sleep 0.3; exit 6) &", [5, 6]),
    "a pipe": (f"({GO}; exit 7) | (cat; exit 8) &", [8]),
    "the shell let it go": (f"({GO}; exit 2) & disown", [None]),
}


@pytest.mark.parametrize("case", ENDS)
async def test_how_it_ends_is_known(either: LocalTerminal, case: str) -> None:
    command, codes = ENDS[case]
    await finish(either, command)
    running = (await either.status()).background
    assert [one.ended for one in running] == [0.0] * len(codes)
    (workspace(either) / "go").touch()
    over = await seen(either, ended)
    assert [one.exit_code for one in over] == codes
    assert all(one.began <= one.ended for one in over)
    status, lines = await finish(either, "echo next")
    assert (status.exit_code, lines) == (0, ["next"]), "what the shell told is no command's output"


async def test_what_left_its_shell_is_found_in_the_sandbox(terminal: LocalTerminal) -> None:
    await finish(terminal, f"setsid bash -c '{GO}; exit 9' > out.log 2>&1 & sleep 0.2")
    (running,) = (await terminal.status()).background
    assert running.adopted and running.command.startswith("bash -c until")
    (workspace(terminal) / "go").touch()
    (gone,) = await seen(terminal, ended)
    assert gone.exit_code is None, "nobody there can tell"


async def test_what_ends_with_its_command_is_not_followed(either: LocalTerminal) -> None:
    await finish(either, "sleep 0.05 & wait; true | cat")
    assert (await either.status()).background == ()


async def test_a_foreground_command_is_not_followed_and_what_is_beside_it_is(
    either: LocalTerminal,
) -> None:
    await finish(either, f"({GO}; exit 3) & sleep 0")
    await either.run("bash -c 'until [ -e over ]; do sleep 0.02; done'")
    (beside,) = (await either.status()).background
    (workspace(either) / "go").touch()
    (gone,) = await seen(either, ended)
    assert (gone.key, gone.exit_code) == (beside.key, None), "its shell is busy and cannot tell"
    (workspace(either) / "over").touch()
    await seen(either, lambda background: background[0].exit_code == 3)


async def test_the_last_line_of_its_file_is_known_to_the_end(either: LocalTerminal) -> None:
    await finish(either, f"(echo begins; {GO}; printf 'a\\rstep 7\\n\\n') > out.log 2>&1 &")
    await seen(either, lambda background: background[0].last_line == "begins")
    (workspace(either) / "go").touch()
    (over,) = await seen(either, ended)
    assert over.last_line == "step 7"
    assert over.output.endswith("/out.log")


async def test_it_is_found_again_by_a_process_that_came_later(
    host: LocalHost, terminal: LocalTerminal, make_host: MakeHost
) -> None:
    await finish(terminal, f"({GO}; exit 3) & sleep 600 &")
    first, second = (await terminal.status()).background
    await host.close()
    (host.workspace / "go").touch()
    again = make_host()
    later = await again.terminal("main")
    assert isinstance(later, LocalTerminal)
    found = await seen(later, lambda background: bool(background[0].ended))
    assert [one.key for one in found] == [first.key, second.key]
    assert (found[0].exit_code, found[1].ended) == (3, 0.0)


async def test_it_ends_with_its_terminal(terminal: LocalTerminal) -> None:
    await finish(terminal, "sleep 600 &")
    await terminal.status()
    await terminal.close()
    (gone,) = (await terminal.status()).background
    assert gone.ended and gone.exit_code is None


async def test_a_flood_of_them_is_followed_as_far_as_there_is_room(
    terminal: LocalTerminal,
) -> None:
    await finish(terminal, f"for n in $(seq 50); do ({GO}; exit 3) & done")
    first = (await terminal.status()).background
    assert len(first) == KEPT_COMMANDS
    assert (await terminal.status()).background == first, "the same ones"
    (workspace(terminal) / "go").touch()
    over = await seen(terminal, ended)
    assert [one.key for one in over] == [one.key for one in first]


async def test_who_watches_reads_what_it_printed_last_while_it_runs(either: LocalTerminal) -> None:
    await finish(either, f"(echo 'epoch 1'; echo 'epoch 2'; {GO}) > out.log 2>&1 &")
    (running,) = await seen(either, lambda found: bool(found[0].last_line))
    assert read_job_line(either.folder, running.key) == "epoch 2"
    (workspace(either) / "go").touch()
    await seen(either, ended)
    assert read_job_line(either.folder, running.key) == "", "the journal says it by now"
