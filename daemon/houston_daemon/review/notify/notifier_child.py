"""Messages to people who are away: a process that follows the journal and sends them.

`python -m houston_daemon.review.notify.notifier_child PARENT HOME CONFIG`, started and watched by
the supervisor if `[notify] urls` names destinations. It reads who needs a person, as consoles do,
writes down what it is about to send, and sends it. It asks the recorder for nothing, and nothing
waits for it: an unavailable service is retried with growing delays. On its stdout it reports what
does not work, as `service.watched_child` does.
"""

import math
import signal
import time

from houston_daemon.review.notify.apprise_services import Service, open_service
from houston_daemon.review.notify.need_notifications import (
    SINGLE_NOTIFICATIONS,
    QuietHours,
    find_notifications,
    take_notifications,
    write_message,
)
from houston_daemon.review.notify.sent_notifications import SentNotifications
from houston_daemon.service.watched_child import begin_watched_child, report_failures
from houston_shared.backoff import Backoff
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.records import ENDED_STATES
from houston_shared.store import attention_ranking
from houston_shared.store.attention_ranking import rank_rollouts
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import now_us

POLL_SECONDS = 1.0
"""How often is looked whether something was committed."""
MAX_READ_INTERVAL_SECONDS = 15.0
"""Between two reads at most: visits end and guidance waits without a commit."""
REST_PER_WORK = 9.0
"""After each read it rests so many times as long as that took: at most a tenth of one core."""
RETRY_SECONDS, MAX_DELAY_SECONDS = 10.0, 900.0
"""Between two tries of a service that failed: doubled each time."""
RENOTIFY_SECONDS = 3_600.0
"""How long a reason must be gone before its return is told again."""
FLOOD_PAUSE_SECONDS = 600.0
"""After a message of many, the least time to the next: hundreds of short rollouts, as of a training
run, would else call somebody all the time."""


class Notifier:
    """Tells what is new to every service."""

    def __init__(self, loaded: LoadedConfiguration) -> None:
        """Raises HoustonError where nothing can be sent anywhere, whatever happens."""
        self._home = loaded.home
        self._settings = loaded.config.notify
        self._quiet = QuietHours(self._settings)
        self._failed: dict[str, str] = {}
        self._services = self._open_services()
        self._sent = SentNotifications(
            loaded.home.sent_notifications, {service.key for service in self._services}
        )
        self._backoffs = {
            service.key: Backoff(RETRY_SECONDS, MAX_DELAY_SECONDS) for service in self._services
        }
        self._last_active = dict.fromkeys(self._sent.told, time.monotonic())
        """By key of what was told, when it held last, monotonic."""
        self._digests = {service.key for service in self._services if self._quiet.hold(now_us())}
        """Services whose next message has all that waits: it was quiet."""
        self._reader = Reader(loaded.home)
        self._version: tuple[int, int] | None = None
        self._read_at, self._rest_until = -math.inf, 0.0
        self._active_keys: frozenset[str] = frozenset()
        """Keys of the reasons that hold."""
        self._seen: dict[str, int] = {}
        """By rollout, the newest event that somebody has had before them."""
        self._reported: dict[str, str] = {}
        if self._sent.unknown:
            keys = ", ".join(notification.key for notification in self._sent.unknown)
            self._failed[""] = f"it is not known whether messages in transit arrived: {keys}"

    def _open_services(self) -> list[Service]:
        """Those that can be sent to; of others it is reported why not."""
        services = []
        for number, url in enumerate(self._settings.urls, 1):
            try:
                services.append(open_service(number, url))
            except ConfigurationError as problem:
                self._failed[f"url {number}"] = f"{problem.cause} {problem.next}"
        if not services:
            raise ConfigurationError(next(iter(self._failed.values())))
        return services

    def run(self) -> None:
        """Follow for ever; what goes wrong as a whole is said, and tried again."""
        while True:
            if self._failed != self._reported:
                self._reported = dict(self._failed)
                report_failures(self._reported)
            try:
                self._failed.pop("", None)
                self.round(time.monotonic())
            except HoustonError as problem:  # the daemon goes down, or the disk is full
                self._reader.close()
                self._failed[""] = str(problem)
            time.sleep(POLL_SECONDS)

    def round(self, now: float) -> None:
        """Look where something may be new, then send what is due. now: monotonic seconds."""
        if self._read_is_due(now):
            self._take_new(now)
        if self._quiet.hold(now_us()):
            self._digests = {service.key for service in self._services}
            return
        for service in self._services:
            if now >= self._backoffs[service.key].not_before:
                self._deliver(service, now)

    def _read_is_due(self, now: float) -> bool:
        if now < self._rest_until:
            return False
        old = now - self._read_at >= MAX_READ_INTERVAL_SECONDS
        return old or self._reader.data_version() != self._version

    def _take_new(self, now: float) -> None:
        self._version = self._reader.data_version()
        plan = attention_ranking.read_rollout_overviews(bodies=False)
        needs = rank_rollouts(self._reader.run(plan), now_us())
        self._read_at = time.monotonic()
        self._rest_until = self._read_at + (self._read_at - now) * REST_PER_WORK
        self._seen = {n.overview.rollout.id: n.overview.seen_seq for n in needs}
        notifications = find_notifications(needs, self._settings.at_need)
        self._active_keys = frozenset(notification.key for notification in notifications)
        self._sent.renew_texts(notifications)
        self._forget_gone(now)
        new = [
            notification
            for notification in notifications
            if not self._sent.was_notified(notification)
        ]
        if not new and not self._sent.is_new:
            return
        # What had ended before anybody was told of anything is no news.
        old = [each for each in new if self._sent.is_new and each.state in ENDED_STATES]
        self._sent.is_new = False
        if left_out := self._sent.take(new, {notification.key for notification in old}):
            self._failed[""] = f"{left_out} older messages were dropped: too many are waiting"

    def _forget_gone(self, now: float) -> None:
        """Tell a reason again where it comes back after somebody saw it, or after long."""
        self._last_active |= dict.fromkeys(self._active_keys, now)
        gone_keys = {
            key
            for key, seq in self._sent.told.items()
            if key not in self._active_keys
            and (
                now - self._last_active.setdefault(key, now) > RENOTIFY_SECONDS
                or self._was_seen(key.partition(" ")[0], seq)
            )
        }
        self._last_active = {
            key: at for key, at in self._last_active.items() if key not in gone_keys
        }
        self._sent.forget(gone_keys)

    def _was_seen(self, rollout: str, seq: int) -> bool:
        """Whether somebody has had an event of a rollout before them; also where it is gone."""
        return rollout not in self._seen or self._seen[rollout] >= seq

    def _deliver(self, service: Service, now: float) -> None:
        """Send the next message to one service, where one is due."""
        delivery = self._sent.delivery(service.key)
        seen_notifications = [
            each for each in delivery.waiting if self._was_seen(each.rollout, each.seq)
        ]
        self._sent.drop(service.key, seen_notifications)
        pause = self._settings.digest_minutes * 60e6
        if delivery.sent_count > SINGLE_NOTIFICATIONS:
            pause = max(pause, FLOOD_PAUSE_SECONDS * 1e6)
        rests = delivery.sent_at <= now_us() < delivery.sent_at + pause  # not: a clock set back
        if not delivery.waiting or rests:
            return
        alone = not self._settings.digest_minutes and service.key not in self._digests
        notifications = self._sent.begin(service.key, take_notifications(delivery.waiting, alone))
        problem = service.send(write_message(notifications, self._active_keys, self._home))
        self._sent.end(service.key, not problem, now_us())
        if problem:
            self._backoffs[service.key].fail(now)
            self._failed[service.label] = problem
        else:
            self._backoffs[service.key] = Backoff(RETRY_SECONDS, MAX_DELAY_SECONDS)
            self._digests.discard(service.key)
            self._failed.pop(service.label, None)


def main() -> None:
    """The process: ends with its parent, or when the settings are edited."""
    loaded = begin_watched_child()
    if loaded is None:
        return
    try:
        notifier = Notifier(loaded)
    except HoustonError as problem:
        report_failures({"": f"{problem.cause} {problem.next}".strip()})
        signal.pause()  # until somebody mends it: the supervisor then starts another
        return
    notifier.run()


if __name__ == "__main__":
    main()
