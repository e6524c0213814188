"""What people who are away are told, when, and in which words."""

from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from houston_daemon.review.notify.need_notifications import (
    DIGEST_NOTIFICATIONS,
    Notification,
    QuietHours,
    find_notifications,
    take_notifications,
    write_message,
)
from houston_shared.config_sections import NotifySettings
from houston_shared.errors import ConfigurationError
from houston_shared.home import Home
from houston_shared.store.attention_ranking import MarkedStep, RolloutOverview, rank_rollouts
from tests.unit.store.test_attention_ranking import NOW, look, rollout

HOME = Home(Path("/data/home"))


def notifications(overview: RolloutOverview, at_need: float = 40) -> list[Notification]:
    return find_notifications(rank_rollouts([overview], NOW), at_need)


def drifting(**fields: Any) -> RolloutOverview:
    steps = [
        MarkedStep("r", 9, ("error",), {"error": "make failed"}),
        MarkedStep("r", 8, ("repeated_action",), {"repeated_action": "3 times in a row: ls"}),
    ]
    return RolloutOverview(rollout(), steps, **fields)


def notification(
    number: int, kind: str = "error_streak", text: str = "error streak: 3"
) -> Notification:
    return Notification(f"probe-{number}", kind, text, "probe", "running", 7, 10)


def test_a_reason_that_weighs_enough_is_told_with_the_step_that_shows_it() -> None:
    (found,) = notifications(drifting())
    assert (found.kind, found.step, found.seq) == ("repeated_action", 8, 100)
    assert found.command == "houston console r@8"
    assert [each.kind for each in notifications(drifting(), 10)] == ["repeated_action", "error"]


@pytest.mark.parametrize(
    "overview",
    [
        pytest.param(drifting(viewers=[look()]), id="somebody looks now"),
        pytest.param(drifting(marked_seq=90, seen_seq=90), id="somebody has seen it"),
        pytest.param(RolloutOverview(rollout()), id="all is well"),
    ],
)
def test_nobody_is_called_for_what_somebody_sees(overview: RolloutOverview) -> None:
    assert notifications(overview) == []


def test_a_rollout_without_a_step_is_opened_at_none() -> None:
    (found,) = notifications(RolloutOverview(rollout(state="failed", steps=0, reason="no engine")))
    assert found.command == "houston console r"


def test_what_agents_write_harms_no_terminal() -> None:
    steps = [MarkedStep("r", 9, ("error_streak",), {"error_streak": "\x1b]0;x\x07 \u202ebad"})]
    (found,) = notifications(RolloutOverview(rollout(), steps))
    assert "\x1b" not in found.text and "\u202e" not in found.text


def test_one_notification_says_reason_place_and_command() -> None:
    message = write_message([notification(1)], frozenset({"probe-1 error_streak"}), HOME)
    assert message.title == "probe-1: error streak"
    reason, status, where, _, command = message.body.splitlines()
    assert (reason, status) == ("3", "probe, running, step 7")
    assert where.endswith(", /data/home")
    assert command == "houston console probe-1@7"


def test_a_digest_names_every_rollout_and_what_has_passed() -> None:
    some = [notification(1), notification(1, "no_gain", "no gain: for 4.0 h"), notification(2)]
    message = write_message(some, frozenset({"probe-1 error_streak", "probe-1 no_gain"}), HOME)
    assert message.title == "2 rollouts need somebody"
    lines = message.body.splitlines()
    assert lines[0] == "probe-1: error streak: 3"
    assert lines[4] == "probe-2: error streak: 3 (it has passed since)"
    assert lines[5] == "  houston console probe-2@7"


def test_a_long_digest_is_cut_and_says_so() -> None:
    many = [notification(number, text="x" * 900) for number in range(DIGEST_NOTIFICATIONS + 5)]
    body = write_message(many, frozenset(), HOME).body
    assert "and 5 more: houston rollout list" in body
    assert len(body) < 6_000


@pytest.mark.parametrize(
    ("waiting", "alone", "taken"),
    [
        pytest.param(1, True, 1, id="one"),
        pytest.param(3, True, 1, id="a few are a message each"),
        pytest.param(4, True, 4, id="many are one"),
        pytest.param(2, False, 2, id="after quiet hours all are one"),
    ],
)
def test_how_many_notifications_a_message_has(waiting: int, alone: bool, taken: int) -> None:
    assert take_notifications([notification(n) for n in range(waiting)], alone) == taken


@pytest.mark.parametrize(
    ("hours", "zone", "at", "quiet"),
    [
        pytest.param("22:00-07:30", "Europe/Berlin", "23:10", True, id="over midnight, before"),
        pytest.param("22:00-07:30", "Europe/Berlin", "07:29", True, id="over midnight, after"),
        pytest.param("22:00-07:30", "Europe/Berlin", "07:30", False, id="they end"),
        pytest.param("22:00-07:30", "Europe/Berlin", "21:59", False, id="they have not begun"),
        pytest.param("12:00-13:00", "Asia/Tokyo", "12:30", True, id="within a day"),
        pytest.param("12:00-13:00", "Asia/Tokyo", "13:30", False, id="outside"),
        pytest.param("", "Asia/Tokyo", "03:00", False, id="none"),
    ],
)
@pytest.mark.parametrize("month", [1, 7])
def test_quiet_hours_are_of_their_zone(
    hours: str, zone: str, at: str, quiet: bool, month: int
) -> None:
    moment = datetime.fromisoformat(f"2026-{month:02}-10T{at}:00").replace(tzinfo=ZoneInfo(zone))
    held = QuietHours(NotifySettings(quiet_hours=hours, time_zone=zone))
    assert held.hold(int(moment.timestamp() * 1e6)) is quiet


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../etc/passwd", "Europe"])
def test_a_zone_that_is_none_is_a_sentence(zone: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a time zone"):
        QuietHours(NotifySettings(time_zone=zone))
