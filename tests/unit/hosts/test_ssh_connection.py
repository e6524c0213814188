"""The near end against far ends that are not what they should be: each is named, none hangs."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from houston_daemon.hosts.host_protocol import HostAway
from houston_daemon.hosts.ssh import ssh_connection as link_module
from houston_daemon.hosts.ssh import ssh_protocol
from houston_daemon.hosts.ssh import ssh_protocol as m
from houston_daemon.hosts.ssh.ssh_command import manual_command, remote_path, ssh_command_line
from houston_daemon.hosts.ssh.ssh_connection import ConnectionCut, HostLink, SshSession
from houston_shared.config_sections import HostSettings

GREETS = r"printf '\nhouston-host 1\n'; "


@pytest.mark.parametrize(
    ("far", "why"),
    [
        ("echo 'ssh: no route to host' >&2; exit 255", "ssh: no route to host"),
        ("exit 0", "it said nothing"),
        ("echo Welcome to this machine; sleep 0.1", "Welcome to this machine"),
        ("head -c 100000 /dev/zero", "it said"),
    ],
)
async def test_what_does_not_greet_is_told_by_its_last_words(far: str, why: str) -> None:
    with pytest.raises(ConnectionCut, match=why):
        await SshSession.open(["sh", "-c", far])


@pytest.mark.parametrize(
    ("far", "why"),
    [
        (r"printf '\377\377\377\377'; cat >/dev/null", "4294967295 bytes was announced"),
        (r"printf '\000\000\000\003abc'; cat >/dev/null", "Expected|invalid|malformed|MessagePack"),
        (r"printf '\000\000\000\011half'", "cut"),
        ("head -c 1 >/dev/null; echo killed >&2; exit 9", "killed"),
    ],
)
async def test_a_far_end_that_breaks_off_ends_what_was_asked(far: str, why: str) -> None:
    session = await SshSession.open(["sh", "-c", "echo noise of a login; " + GREETS + far])
    with pytest.raises(ConnectionCut, match=why):
        async with asyncio.timeout(20):
            await session.ask(m.Ping())
            await session.ended.wait()
            await session.ask(m.Ping())
    await session.close()


async def test_a_host_that_never_was_is_away_with_its_reason(tmp_path: Path) -> None:
    async def begin(_: SshSession) -> None:
        raise AssertionError("there is no session")

    link = HostLink(
        "far",
        lambda: ["sh", "-c", "echo no such host >&2; exit 255"],
        begin,
        lambda: tmp_path / "turn",
    )
    assert await link.start() == "no such host"
    await link.close()
    with pytest.raises(HostAway, match="far cannot be reached: no such host"):
        await link.ask(m.Ping())


ODD = r"head -c 1 >/dev/null; printf '{answer}'; cat >/dev/null"


@pytest.mark.parametrize(
    "answer",
    [
        r"\000\000\000\020\202\246number\001\245value\300",  # nothing, where a Welcome is due
        r"\000\000\000\051\203\246number\001\245value\300"
        r"\247trouble\202\244kind\243Odd\245words\220",  # an error of a kind that nobody knows
    ],
)
async def test_an_odd_first_answer_is_named_and_another_session_tried(
    answer: str, tmp_path: Path
) -> None:
    async def begin(session: SshSession) -> None:
        link.read(await session.ask(m.Ping()), m.HostWelcome)

    far = ["sh", "-c", GREETS + ODD.format(answer=answer)]
    link = HostLink("far", lambda: far, begin, lambda: tmp_path / "turn")
    async with asyncio.timeout(20):
        assert "odd answer" in await link.start()
    await link.close()


async def test_a_far_end_that_hangs_stops_no_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers pings, perhaps, but its disk does not."""

    async def begin(_: SshSession) -> None:
        """Nothing needs to be said."""

    monkeypatch.setattr(link_module, "ANSWER_SECONDS", 0.2)
    link = HostLink(
        "far", lambda: ["sh", "-c", GREETS + "cat >/dev/null"], begin, lambda: tmp_path / "t"
    )
    assert await link.start() == ""
    with pytest.raises(HostAway, match=r"no answer within 0\.2 s") as away:
        await link.ask(m.Present(), bool, idempotent=True)
    assert away.value.cut
    async with asyncio.timeout(60):
        await away.value.back()
    await link.close()


async def test_a_folder_of_connections_that_is_gone_is_named(tmp_path: Path) -> None:
    async def begin(_: SshSession) -> None:
        raise AssertionError("there is no session")

    link = HostLink("far", lambda: ["true"], begin, lambda: tmp_path / "gone" / "turn")
    async with asyncio.timeout(20):
        assert "No such file" in await link.start()
    await link.close()


def test_nothing_of_a_host_becomes_an_option_or_a_second_command() -> None:
    words = ssh_command_line(
        HostSettings(ssh="-oProxyCommand=evil", command="/o dd/houston; rm -rf /")
    )
    assert words[-3:-1] == ["--", "-oProxyCommand=evil"]
    assert words[-1] == "exec '/o dd/houston; rm -rf /' host-serve"
    assert remote_path("~/my venv/bin/houston") == "~/'my venv/bin/houston'"


def test_a_person_can_type_what_reaches_a_host() -> None:
    host = HostSettings(
        ssh="ada@far", port=2022, identity_file="/k ey", ssh_config="/c", command="~/h"
    )
    said = manual_command(host)
    assert said == "ssh -F /c -p 2022 -i '/k ey' -o IdentitiesOnly=yes ada@far '~/h --version'"
    assert manual_command(HostSettings(ssh="far")) == "ssh far 'houston --version'"
    typed = ["bash", "-c", f"ssh() {{ printf '%s\\n' \"$@\"; }}; {said}"]
    words = subprocess.run(typed, capture_output=True, text=True, check=True).stdout.splitlines()
    assert words[-2:] == ["ada@far", "~/h --version"], "the shell there knows what ~ is"


async def test_a_far_end_that_ends_by_itself_leaves_no_word_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A look at a process that has ended takes its exit status from who waits for it."""
    for _ in range(40):
        with pytest.raises(ConnectionCut):
            await SshSession.open(["false"])
    assert "Unknown child process" not in caplog.text


@pytest.mark.parametrize(
    "problem",
    [PermissionError(13, "Permission denied"), ValueError("odd"), KeyError("x")],
)
def test_errors_arrive_as_something_that_can_be_told(problem: Exception) -> None:
    arrived = ssh_protocol.unpack_error(ssh_protocol.pack_error(problem))
    assert str(problem.args[-1]) in str(arrived)
