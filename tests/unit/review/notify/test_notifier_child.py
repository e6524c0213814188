"""When which message goes out: a notifier on a written home, a real server, and a moved clock.

Time is what a test says: `round` is told the monotonic time, and `now_us` is replaced.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.review.notify import notifier_child, sent_notifications
from houston_daemon.review.notify.notifier_child import RENOTIFY_SECONDS, Notifier
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.config_sections import NotifySettings
from houston_shared.errors import HoustonError
from houston_shared.records import ObservationBody
from tests.support.ntfy import NtfyServer
from tests.support.written_home import WrittenHome

BEGIN = int(datetime(2026, 3, 4, 12, 0, tzinfo=UTC).timestamp())


class Desk:
    """A home, a server and a notifier that is driven by hand."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = WrittenHome(folder)
        self.server = NtfyServer()
        self.seconds = 0.0
        self.clock_ahead = 0.0
        monkeypatch.setattr(
            notifier_child,
            "now_us",
            lambda: int((BEGIN + self.seconds + self.clock_ahead) * 1_000_000),
        )
        monkeypatch.setattr(notifier_child.time, "monotonic", lambda: 1_000 + self.seconds)
        # apprise waits 5.5 s between two requests of a service, for nothing here
        monkeypatch.setattr("apprise.plugins.base.NotifyBase.request_rate_per_sec", 0)

    def notifier(self, **settings: Any) -> Notifier:
        notify = NotifySettings(**{"urls": (self.server.url("t"),), **settings})
        config = Configuration(notify=notify)
        return Notifier(LoadedConfiguration(config, self.home.home, "defaults"))

    def later(self, notifier: Notifier, seconds: float) -> None:
        """Let time pass, a round at the end."""
        self.seconds += seconds
        notifier.round(1_000 + self.seconds)

    def drift(self, name: str, step: int = 1, signal: str = "error_streak") -> None:
        if step == 1:
            self.home.rollout(name)
        observation = ObservationBody(tail="", attention=(signal,), reasons={signal: "3 times"})
        self.home.step(name, step, observation=observation)

    @property
    def titles(self) -> list[str]:
        return [each["title"] for each in self.server.arrived]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    made = Desk(tmp_path / "home", monkeypatch)
    yield made
    made.server.close()
    made.home.close()


def test_one_message_for_each_reason_and_rollout(desk: Desk) -> None:
    notifier = desk.notifier()
    desk.later(notifier, 0)
    desk.drift("a")
    for _ in range(3):
        desk.later(notifier, 20)
    assert desk.titles == ["a: error streak"]
    desk.drift("a", 2, "score_fell")
    desk.drift("b")
    for _ in range(3):
        desk.later(notifier, 20)
    assert sorted(desk.titles[1:]) == ["a: score fell", "b: error streak"]
    assert desk.server.arrived[0]["message"].endswith("houston console a@1")


@pytest.mark.parametrize("digest_minutes", [0, 5])
def test_a_clock_that_is_set_back_silences_nobody(desk: Desk, digest_minutes: float) -> None:
    notifier = desk.notifier(digest_minutes=digest_minutes)
    desk.clock_ahead = 3 * 3_600
    desk.drift("a")
    desk.later(notifier, 20)
    desk.clock_ahead = 0
    desk.drift("b")
    desk.later(notifier, 20)
    assert desk.titles == ["a: error streak", "b: error streak"]


def test_many_at_once_are_one_message(desk: Desk) -> None:
    notifier = desk.notifier()
    for name in "abcde":
        desk.drift(name)
    desk.later(notifier, 20)
    assert desk.titles == ["5 rollouts need somebody"]


@pytest.mark.parametrize(("at_need", "count"), [(60, 1), (61, 0), (0, 1)])
def test_what_weighs_too_little_calls_nobody(desk: Desk, at_need: float, count: int) -> None:
    notifier = desk.notifier(at_need=at_need)
    desk.drift("a")
    desk.later(notifier, 20)
    assert len(desk.titles) == count


def test_another_notifier_sends_nothing_twice(desk: Desk) -> None:
    desk.drift("a")
    desk.later(desk.notifier(), 20)
    desk.later(desk.notifier(), 20)
    desk.drift("b")
    desk.later(desk.notifier(), 20)
    assert desk.titles == ["a: error streak", "b: error streak"]


def test_a_notifier_that_is_killed_while_it_sends_sends_nothing_twice(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> str:
        raise Killed

    desk.drift("a")
    notifier = desk.notifier()
    with monkeypatch.context() as patched:
        patched.setattr(notifier_child.Service, "send", killed)
        with pytest.raises(Killed):
            desk.later(notifier, 20)
    successor = desk.notifier()
    desk.later(successor, 20)
    assert desk.titles == []
    assert "a error_streak" in successor._failed[""]


def test_what_had_ended_before_is_no_news(desk: Desk) -> None:
    desk.home.rollout("old", state="failed", reason="no engine")
    desk.drift("a")
    notifier = desk.notifier()
    desk.later(notifier, 20)
    assert desk.titles == ["a: error streak"]
    desk.home.rollout("new", state="failed", reason="no engine")
    desk.later(notifier, 20)
    assert desk.titles[1:] == ["new: failed"]


def test_quiet_hours_end_with_one_digest(desk: Desk) -> None:
    notifier = desk.notifier(quiet_hours="11:00-13:00", time_zone="UTC")
    for name in "ab":
        desk.drift(name)
        desk.later(notifier, 20)
    assert desk.titles == []
    desk.later(notifier, 3_600)
    assert desk.titles == ["2 rollouts need somebody"]
    desk.drift("c")
    desk.later(notifier, 20)
    assert desk.titles[1:] == ["c: error streak"]


def test_a_digest_comes_no_sooner_than_it_may(desk: Desk) -> None:
    notifier = desk.notifier(digest_minutes=10)
    desk.drift("a")
    desk.later(notifier, 20)
    for name in "bc":
        desk.drift(name)
        desk.later(notifier, 200)
    assert desk.titles == ["a: error streak"]
    desk.later(notifier, 300)
    assert desk.titles[1:] == ["2 rollouts need somebody"]


def test_what_somebody_has_seen_meanwhile_is_left_out(desk: Desk) -> None:
    notifier = desk.notifier(quiet_hours="11:00-13:00", time_zone="UTC")
    for name in "ab":
        desk.drift(name)
    desk.later(notifier, 20)
    desk.home.look("a", "ada", last=1, seq=desk.home.seq)
    desk.later(notifier, 3_600)
    assert desk.titles == ["b: error streak"]


def test_a_service_that_refuses_is_tried_again_later_each_time(desk: Desk) -> None:
    desk.server.answer = 429
    notifier = desk.notifier()
    desk.drift("a")
    for _ in range(40):
        desk.later(notifier, 5)
    assert len(desk.server.received) == 5, "after 0, 10, 20, 40 and 80 s"
    desk.server.answer = 200
    desk.later(notifier, 160)
    assert desk.titles == ["a: error streak"]


def test_a_flood_is_a_message_every_ten_minutes(desk: Desk) -> None:
    notifier = desk.notifier()
    for name in "abcd":
        desk.drift(name)
    desk.later(notifier, 20)
    for name in "efg":
        desk.drift(name)
        desk.later(notifier, 100)
    assert desk.titles == ["4 rollouts need somebody"]
    desk.later(notifier, 300)
    assert len(desk.titles) == 2


def test_a_url_that_is_none_keeps_the_others_from_nothing(desk: Desk) -> None:
    notifier = desk.notifier(urls=("bogus://x", desk.server.url("t")))
    desk.drift("a")
    desk.later(notifier, 20)
    assert desk.titles == ["a: error streak"]
    assert "URL 1 of `notify.urls` is not one" in notifier._failed["url 1"]


def test_a_full_disk_loses_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    notifier = desk.notifier()
    desk.drift("a")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(sent_notifications, "write_atomically", full)
        for _ in range(2):
            with pytest.raises(HoustonError, match="No space left"):
                desk.later(notifier, 20)
    assert desk.titles == []
    desk.later(notifier, 20)
    assert desk.titles == ["a: error streak"]


def test_one_service_that_is_away_keeps_the_other_from_nothing(desk: Desk) -> None:
    urls = ("ntfy://localhost:1/x", desk.server.url("t"))
    notifier = desk.notifier(urls=urls)
    desk.drift("a")
    desk.later(notifier, 20)
    assert desk.titles == ["a: error streak"]
    assert list(notifier._failed) == ["ntfy (url 1)"]


def test_many_that_waited_for_a_service_are_one_message(desk: Desk) -> None:
    desk.server.answer = 429
    notifier = desk.notifier()
    for name in "abcdef":
        desk.drift(name)
        desk.later(notifier, 20)
    desk.server.answer = 200
    desk.later(notifier, 900)
    assert desk.titles == ["6 rollouts need somebody"]


Return = Callable[[Desk, Notifier], None]


def soon(desk: Desk, notifier: Notifier) -> None:
    """It is gone for a moment."""
    pass_steps(desk, 2, 7)
    desk.later(notifier, 20)


def after_long(desk: Desk, notifier: Notifier) -> None:
    pass_steps(desk, 2, 7)
    desk.later(notifier, 20)
    desk.later(notifier, RENOTIFY_SECONDS)
    desk.later(notifier, 20)


def after_a_visit(desk: Desk, notifier: Notifier) -> None:
    pass_steps(desk, 2, 7)
    desk.home.look("a", "ada", last=1, seq=desk.home.seq)
    desk.later(notifier, 20)


def pass_steps(desk: Desk, first: int, last: int) -> None:
    for step in range(first, last + 1):
        desk.home.step("a", step)


@pytest.mark.parametrize(
    ("back", "messages"),
    [
        pytest.param(soon, 1, id="a reason that flickers is told once"),
        pytest.param(after_long, 2, id="one that comes back after long is told again"),
        pytest.param(after_a_visit, 2, id="one that comes back after a visit is told again"),
    ],
)
def test_a_reason_that_comes_back(desk: Desk, back: Return, messages: int) -> None:
    notifier = desk.notifier()
    desk.drift("a")
    desk.later(notifier, 20)
    back(desk, notifier)
    desk.drift("a", 8)
    desk.later(notifier, 20)
    assert desk.titles == ["a: error streak"] * messages
