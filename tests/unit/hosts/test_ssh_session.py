"""The near end against far ends that are not what they should be: each is named, none hangs."""

import asyncio
from pathlib import Path

import pytest

from houston_daemon.hosts.errors import HostAway
from houston_daemon.hosts.ssh import link as link_module
from houston_daemon.hosts.ssh import messages as m
from houston_daemon.hosts.ssh import troubles
from houston_daemon.hosts.ssh.link import Link
from houston_daemon.hosts.ssh.session import Cut, Session
from houston_daemon.hosts.ssh.settings import by_hand, command_line, far_path
from houston_shared.config_hosts import Host

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
    with pytest.raises(Cut, match=why):
        await Session.open(["sh", "-c", far])


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
    session = await Session.open(["sh", "-c", "echo noise of a login; " + GREETS + far])
    with pytest.raises(Cut, match=why):
        async with asyncio.timeout(20):
            await session.ask(m.Ping())
            await session.ended.wait()
            await session.ask(m.Ping())
    await session.close()


async def test_a_host_that_never_was_is_away_with_its_reason(tmp_path: Path) -> None:
    async def begin(_: Session) -> None:
        raise AssertionError("there is no session")

    link = Link(
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
    async def begin(session: Session) -> None:
        link.read(await session.ask(m.Ping()), m.Welcome)

    far = ["sh", "-c", GREETS + ODD.format(answer=answer)]
    link = Link("far", lambda: far, begin, lambda: tmp_path / "turn")
    async with asyncio.timeout(20):
        assert "odd answer" in await link.start()
    await link.close()


async def test_a_far_end_that_hangs_stops_no_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers pings, perhaps, but its disk does not."""

    async def begin(_: Session) -> None:
        """Nothing needs to be said."""

    monkeypatch.setattr(link_module, "ANSWER_SECONDS", 0.2)
    link = Link(
        "far", lambda: ["sh", "-c", GREETS + "cat >/dev/null"], begin, lambda: tmp_path / "t"
    )
    assert await link.start() == ""
    with pytest.raises(HostAway, match=r"no answer within 0\.2 s") as away:
        await link.ask(m.Present(), bool, again=True)
    assert away.value.cut
    async with asyncio.timeout(60):
        await away.value.back()
    await link.close()


async def test_a_folder_of_connections_that_is_gone_is_named(tmp_path: Path) -> None:
    async def begin(_: Session) -> None:
        raise AssertionError("there is no session")

    link = Link("far", lambda: ["true"], begin, lambda: tmp_path / "gone" / "turn")
    async with asyncio.timeout(20):
        assert "No such file" in await link.start()
    await link.close()


def test_nothing_of_a_host_becomes_an_option_or_a_second_command() -> None:
    words = command_line(Host(ssh="-oProxyCommand=evil", command="/o dd/houston; rm -rf /"))
    assert words[-3:-1] == ["--", "-oProxyCommand=evil"]
    assert words[-1] == "exec '/o dd/houston; rm -rf /' host-serve"
    assert far_path("~/my venv/bin/houston") == "~/'my venv/bin/houston'"


def test_a_person_can_type_what_reaches_a_host() -> None:
    host = Host(ssh="ada@far", port=2022, identity_file="/k ey", ssh_config="/c", command="~/h")
    said = by_hand(host)
    assert said == "ssh -F /c -p 2022 -i '/k ey' -o IdentitiesOnly=yes ada@far ~/h --version"
    assert by_hand(Host(ssh="far")) == "ssh far houston --version"


async def test_a_far_end_that_ends_by_itself_leaves_no_word_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A look at a process that has ended takes its exit status from who waits for it."""
    for _ in range(40):
        with pytest.raises(Cut):
            await Session.open(["false"])
    assert "Unknown child process" not in caplog.text


@pytest.mark.parametrize(
    "problem",
    [PermissionError(13, "Permission denied"), ValueError("odd"), KeyError("x")],
)
def test_errors_arrive_as_something_that_can_be_told(problem: Exception) -> None:
    arrived = troubles.raised(troubles.told(problem))
    assert str(problem.args[-1]) in str(arrived)
