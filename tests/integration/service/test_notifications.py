"""A rollout that drifts calls somebody who is away: real daemon, real agent, Apprise, and a real
server that speaks ntfy's protocol.

`apprise` comes with the extra `notify`, which `make test` installs.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.ntfy import NtfyServer
from tests.support.station import Station

LIST = {"thought": "Once more.", "calls": [{"name": "list_files", "arguments": {"path": "."}}]}
WAIT = {"thought": "I wait.", "calls": [{"name": "sleep", "arguments": {"sleep_time": 900}}]}
DRIFTS = [LIST, LIST, LIST, LIST, WAIT]
TOPIC, PASSWORD = "night-of-the-lab", "pass-w0rd-of-ada"


@pytest.fixture
def ntfy() -> Iterator[NtfyServer]:
    made = NtfyServer()
    yield made
    made.close()


def start(station: Station, ntfy: NtfyServer, more: str = "", code: int | None = 0) -> None:
    """A daemon that sends there; the whole URL stands in its environment."""
    station.environment["PAGER_URL"] = ntfy.url(TOPIC, f"ada:{PASSWORD}")
    station.home.mkdir(exist_ok=True)
    (station.home / "houston.toml").write_text(f'[notify]\nurls = ["${{PAGER_URL}}"]\n{more}')
    station.run("daemon", "start", code=code)


def drift(station: Station, name: str = "drifts") -> str:
    (rollout,) = station.rollout(station.task(name), station.script(DRIFTS, name))
    return rollout


def troubles(station: Station) -> dict[str, str]:
    (status,) = station.json("daemon", "status")
    found: dict[str, str] = status["troubles"]
    return found


def test_a_rollout_that_drifts_sends_one_message_whatever_is_restarted(
    station: Station, ntfy: NtfyServer
) -> None:
    start(station, ntfy)
    rollout = drift(station)
    station.until(lambda: ntfy.arrived, 120, "somebody is called")
    (message,) = ntfy.arrived
    assert message["topic"] == TOPIC
    assert message["title"] == f"{rollout}: repeating itself"
    assert "times in a row" in message["message"]
    command = message["message"].splitlines()[-1]
    assert command.startswith(f"houston console {rollout}@")
    picture = station.folder / "there.svg"
    station.run(*command.split()[1:], "--picture", str(picture))
    assert rollout in picture.read_text()
    station.kill_daemon()
    station.start()
    station.run("daemon", "restart")
    other = drift(station, "drifts-too")
    station.until(lambda: len(ntfy.received) > 1, 120, "somebody is called for the other")
    assert [each["title"].split(":")[0] for each in ntfy.received] == [rollout, other]
    assert troubles(station) == {}


@pytest.mark.slow
def test_a_service_that_refuses_disturbs_nothing_and_is_said_once(
    station: Station, ntfy: NtfyServer
) -> None:
    ntfy.answer = 429
    start(station, ntfy)
    rollout = drift(station)
    station.until(lambda: len(ntfy.received) > 1, 120, "it was tried again")
    said = station.until(lambda: troubles(station).get("notify"), why="the status says so")
    assert said.startswith("ntfy (url 1) has no messages: Failed to send ntfy notification")
    assert "too many requests" in said
    assert station.closed(rollout) == 4, "the agent goes on"
    shown = station.run("daemon", "status").stdout
    ntfy.answer = 200
    station.until(lambda: ntfy.arrived, 120, "it arrives when it may")
    station.until(lambda: not troubles(station), why="all is well again")
    logs = "".join(file.read_text() for file in (station.home / "logs").rglob("*.log"))
    assert logs.count("too many requests") == 1
    for part in (TOPIC, PASSWORD):
        assert part not in logs + said + shown + (station.home / "notifications.json").read_text()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param(
            'urls = ["bogus://secret-token-1"]', "URL 1 of `notify.urls` is not one", id="url"
        ),
        pytest.param('urls = ["${NOT_SET}"]', "NOT_SET, which is not set", id="variable"),
        pytest.param('urls = ["ntfy://x"]\ntime_zone = "Mars/X"', "not a time zone", id="zone"),
    ],
)
def test_what_can_send_nothing_is_said_and_disturbs_nothing(
    station: Station, settings: str, words: str
) -> None:
    station.home.mkdir()
    (station.home / "houston.toml").write_text(f"[notify]\n{settings}\n")
    station.start()
    said = station.until(lambda: troubles(station).get("notify"), why="the status says so")
    assert words in said
    assert "secret-token-1" not in said + station.log()
    refused = station.run("notify", "test", code=78)
    assert words in refused.stdout + refused.stderr


def test_hours_that_are_none_stop_the_start(station: Station) -> None:
    station.home.mkdir()
    (station.home / "houston.toml").write_text('[notify]\nquiet_hours = "22-7"\n')
    refused = station.run("daemon", "start", code=78)
    assert "not a span of hours like 22:00-07:30" in refused.stderr


def test_notify_test_says_what_each_url_answered(station: Station, ntfy: NtfyServer) -> None:
    station.environment["PAGER_URL"] = ntfy.url(TOPIC)
    station.home.mkdir()
    urls = '["${PAGER_URL}", "ntfy://localhost:1/away"]'
    (station.home / "houston.toml").write_text(f"[notify]\nurls = {urls}\n")
    told = station.run("notify", "test", code=1)
    first, second = told.stdout.splitlines()
    assert first == "ntfy (url 1): sent"
    assert second.startswith("ntfy (url 2): A Connection error")
    assert TOPIC not in told.stdout + told.stderr and "away" not in told.stdout
    assert [each["topic"] for each in ntfy.arrived] == [TOPIC]
    again = station.run("notify", "test", "--json", code=1).stdout
    lines: list[dict[str, Any]] = [json.loads(line) for line in again.splitlines()]
    assert [(line["service"], line["sent"]) for line in lines] == [
        ("ntfy (url 1)", True),
        ("ntfy (url 2)", False),
    ]


def test_without_urls_the_test_says_what_to_write(station: Station) -> None:
    told = station.run("notify", "test", code=78)
    assert "`[notify] urls` names no address to send to." in told.stderr
