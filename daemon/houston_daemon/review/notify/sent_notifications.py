"""What was sent to people who are away, and what waits: one small file of the home.

Everything that decides whether a message is sent is on disk before it is sent: a notifier that is
killed and restarted sends nothing twice. A message that was being sent at that moment counts as
sent, because nobody can tell. Only the notifier uses the file; without it, current reasons are sent
once more.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from houston_daemon.review.notify.need_notifications import Notification
from houston_shared.atomic_file import write_atomically
from houston_shared.errors import HoustonError, unwritable_as_error

OWNER_ONLY = 0o600
MAX_WAITING_MESSAGES = 1_000
"""Notifications that wait for one URL; the oldest are left out, and that is said."""


class Delivery(msgspec.Struct):
    """One URL's messages."""

    waiting: list[Notification] = []
    """Not sent, the oldest first."""
    sending: list[Notification] = []
    """What a message that is on its way has."""
    sent_at: int = 0
    """When the last message arrived, UTC microseconds; 0 for never."""
    sent_count: int = 0
    """How many notifications it had."""


class _SentFile(msgspec.Struct):
    told: dict[str, int] = {}
    """What was taken, by key, with the rollout's newest event then; a reason that still holds is
    not taken again."""
    deliveries: dict[str, Delivery] = {}
    """By the key of a service."""


class SentNotifications:
    """The file, and what stands in it."""

    def __init__(self, path: Path, services: Collection[str]) -> None:
        """services: keys of those that messages go to; what waits for others is let go.

        Raises HoustonError for a file that cannot be read.
        """
        self._path = path
        content = _read_file(path)
        self.is_new = content is None
        """Whether nothing was ever told here."""
        content = content or _SentFile()
        self._notified_seqs = content.told
        self._deliveries = {key: content.deliveries.get(key, Delivery()) for key in services}
        self.unknown = [n for each in self._deliveries.values() for n in each.sending]
        """What was on its way when the notifier ended: nobody knows whether it arrived."""
        for delivery in self._deliveries.values():
            delivery.sending = []

    def delivery(self, service: str) -> Delivery:
        """What waits for a service, and when it had its last message."""
        return self._deliveries[service]

    def was_notified(self, notification: Notification) -> bool:
        """Whether this reason was taken already."""
        return notification.key in self._notified_seqs

    def take(self, notifications: Iterable[Notification], quietly: Collection[str] = ()) -> int:
        """Queue new reasons for every service; returns how many older ones were dropped for them.

        quietly: keys of those that are only remembered.
        """
        left_out = 0
        for notification in notifications:
            self._notified_seqs[notification.key] = notification.seq
            for delivery in self._deliveries.values() if notification.key not in quietly else ():
                delivery.waiting.append(notification)
                if len(delivery.waiting) > MAX_WAITING_MESSAGES:
                    del delivery.waiting[0]
                    left_out += 1
        self.save()
        return left_out

    def renew_texts(self, notifications: Iterable[Notification]) -> None:
        """Have what waits say what is said of it now: a text may have been erased since."""
        texts = {notification.key: notification.text for notification in notifications}
        changed = False
        for delivery in self._deliveries.values():
            for place, old in enumerate(delivery.waiting):
                text = texts.get(old.key, old.text)
                if text != old.text:
                    delivery.waiting[place] = msgspec.structs.replace(old, text=text)
                    changed = True
        if changed:
            self.save()

    def forget(self, keys: Collection[str]) -> None:
        """Tell these again when they come up again."""
        if keys:
            self._notified_seqs = {
                key: seq for key, seq in self._notified_seqs.items() if key not in keys
            }
            self.save()

    @property
    def told(self) -> Mapping[str, int]:
        """What was taken: by key, the rollout's newest event then."""
        return self._notified_seqs

    def drop(self, service: str, notifications: Sequence[Notification]) -> None:
        """Take what needs no message any more out of what waits."""
        if notifications:
            delivery = self._deliveries[service]
            dropped_keys = {notification.key for notification in notifications}
            delivery.waiting = [each for each in delivery.waiting if each.key not in dropped_keys]
            self.save()

    def begin(self, service: str, count: int) -> list[Notification]:
        """The oldest `count` that wait, on disk as on their way. Raises HoustonError."""
        delivery = self._deliveries[service]
        delivery.sending, delivery.waiting = delivery.waiting[:count], delivery.waiting[count:]
        try:
            self.save()
        except HoustonError:
            delivery.waiting = [*delivery.sending, *delivery.waiting]
            delivery.sending = []
            raise
        return delivery.sending

    def end(self, service: str, arrived: bool, now: int) -> None:
        """How the message that was on its way ended. now: UTC microseconds."""
        delivery = self._deliveries[service]
        if arrived:
            delivery.sent_at, delivery.sent_count = now, len(delivery.sending)
        else:
            delivery.waiting = [*delivery.sending, *delivery.waiting]
        delivery.sending = []
        self.save()

    def save(self) -> None:
        """Have everything on disk. Raises HoustonError."""
        data = msgspec.json.encode(_SentFile(self._notified_seqs, self._deliveries))
        with unwritable_as_error(self._path, "No message is sent."):
            write_atomically(self._path, data, mode=OWNER_ONLY)


def _read_file(path: Path) -> _SentFile | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_SentFile)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as problem:
        raise HoustonError(
            f"{path} cannot be read: {problem}.",
            "No message is sent, because it is not known which were sent before.",
            f"Remove it: messages about what needs somebody now are then sent again. rm {path}",
        ) from None
