"""What people who are away are told: which reasons are new, when, and in which words.

Pure functions of how the rollouts stand (`houston_shared.store.attention_ranking`), the settings
and the time. A notification is one reason of one rollout. Nothing is read, kept or sent here.
"""

import platform
from collections.abc import Sequence
from datetime import UTC, datetime, time
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from houston_shared.command_arguments import format_permalink
from houston_shared.config_sections import NotifySettings
from houston_shared.errors import ConfigurationError
from houston_shared.home import Home
from houston_shared.safe_text import safe_line
from houston_shared.secret_redaction import redact
from houston_shared.store.attention_ranking import NeedReason, RolloutNeed
from houston_shared.times_and_counts import pluralize

SINGLE_NOTIFICATIONS = 3
"""So many notifications are a message each; more are one."""
REASON_CHARACTERS = 600
DIGEST_REASON_CHARACTERS = 160
DIGEST_NOTIFICATIONS = 20
"""Notifications that a digest writes out."""


class Notification(msgspec.Struct, frozen=True):
    """One reason of one rollout."""

    rollout: str
    kind: str
    text: str
    """The reason in words."""
    task: str
    state: str
    """The rollout's: `running`, `failed` and so on."""
    step: int
    """Which one to look at; 0 where there is none yet."""
    seq: int
    """Newest event of the rollout when it came up: who saw that has seen the reason, too."""

    @property
    def key(self) -> str:
        """Equal for the same reason of the same rollout."""
        return f"{self.rollout} {self.kind}"  # no id has a space

    @property
    def command(self) -> str:
        """What opens the rollout where it needs somebody."""
        place = format_permalink(self.rollout, self.step) if self.step else self.rollout
        return f"houston console {place}"


class Message(NamedTuple):
    """What is sent."""

    title: str
    body: str


def find_notifications(needs: Sequence[RolloutNeed], at_need: float) -> list[Notification]:
    """The reasons with enough weight, of rollouts that nobody looks at now; the most urgent rollout
    first."""
    return [
        _make_notification(need, reason)
        for need in needs
        if not need.overview.viewers
        for reason in need.reasons
        if reason.weight >= at_need
    ]


def _make_notification(need: RolloutNeed, reason: NeedReason) -> Notification:
    row = need.overview.rollout
    return Notification(
        rollout=row.id,
        kind=reason.kind,
        text=redact(str(safe_line(reason.text))),
        task=row.task,
        state=row.state,
        step=min(reason.step or row.steps, row.steps),
        seq=row.last_seq,
    )


class QuietHours:
    """Hours of the day in which nothing is sent."""

    def __init__(self, settings: NotifySettings) -> None:
        """Raises ConfigurationError for a time zone that there is not."""
        begin, _, end = settings.quiet_hours.partition("-")
        self._hours = (time.fromisoformat(begin), time.fromisoformat(end)) if begin else None
        self._zone = _time_zone(settings.time_zone)

    def hold(self, now: int) -> bool:
        """Whether it is quiet now. now: UTC microseconds."""
        if self._hours is None:
            return False
        moment = datetime.fromtimestamp(now / 1e6, UTC).astimezone(self._zone).time()
        begin, end = self._hours
        if begin <= end:
            return begin <= moment < end
        return moment >= begin or moment < end


def _time_zone(name: str) -> ZoneInfo | None:
    """None for this machine's own."""
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigurationError(
            f"`notify.time_zone` = {name!r} is not a time zone that this machine knows.",
            "No message is sent.",
            "Name one such as Europe/Berlin, or leave it out for this machine's.",
        ) from None


def take_notifications(waiting: Sequence[Notification], alone: bool) -> int:
    """How many of those that wait, oldest first, the next message has.

    alone: whether a few of them are a message each.
    """
    return 1 if alone and len(waiting) <= SINGLE_NOTIFICATIONS else len(waiting)


def write_message(
    notifications: Sequence[Notification], holding: frozenset[str], home: Home
) -> Message:
    """One notification, or a digest of several. holding: keys of those whose reason still holds."""
    where = f"{platform.node()}, {home.path}"
    if len(notifications) == 1:
        (notification,) = notifications
        label, _, rest = notification.text.partition(": ")
        reason = f"{_cut(rest or label, REASON_CHARACTERS)}{_expired_note(notification, holding)}"
        status = f"{notification.task}, {notification.state}, step {notification.step}"
        body = "\n".join([reason, status, where, "", notification.command])
        return Message(f"{notification.rollout}: {_cut(label, 80)}", body)
    rollouts = list(dict.fromkeys(notification.rollout for notification in notifications))
    lines = []
    for notification in notifications[:DIGEST_NOTIFICATIONS]:
        text = _cut(notification.text, DIGEST_REASON_CHARACTERS)
        lines += [
            f"{notification.rollout}: {text}{_expired_note(notification, holding)}",
            f"  {notification.command}",
        ]
    if len(notifications) > DIGEST_NOTIFICATIONS:
        lines.append(f"and {len(notifications) - DIGEST_NOTIFICATIONS} more: houston rollout list")
    count = pluralize(len(rollouts), "rollout")
    title = f"{count} {'needs' if len(rollouts) == 1 else 'need'} somebody"
    return Message(title, "\n".join([*lines, "", where]))


def trial_message(home: Home) -> Message:
    """What `houston notify test` sends."""
    words = "This is a test: messages about rollouts that need somebody come here."
    where = f"{platform.node()}, {home.path}"
    return Message("Houston: test message", "\n".join([words, where, "", "houston console"]))


def _expired_note(notification: Notification, holding: frozenset[str]) -> str:
    return "" if notification.key in holding else " (it has passed since)"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
