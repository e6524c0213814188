"""The process that copies a home into its store, round after round.

`python -m houston_daemon.artifacts.artifact_copier_child PARENT HOME CONFIG`, started and watched
by the supervisor where `[artifacts] url` names a store. A refusal of the store stops nothing else:
it is reported once, retried at growing intervals, and copying continues where it stopped. After
SIGTERM it copies the rest, and ends. Its stdout says what is wrong. `artifact_copier` decides what
is copied, and in which order.
"""

import signal
import threading
import time

from houston_daemon.artifacts.artifact_copier import ArtifactCopier
from houston_daemon.artifacts.artifact_store import ArtifactStore
from houston_daemon.service.watched_child import begin_watched_child, report_failures
from houston_shared import secret_redaction
from houston_shared.backoff import Backoff
from houston_shared.errors import ConfigurationError, HoustonError

RETRY_SECONDS = 5.0
MAX_DELAY_SECONDS = 300.0


def main() -> None:
    """The process: ends with its parent."""
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    loaded = begin_watched_child()
    if loaded is None:
        return
    try:
        store = ArtifactStore(loaded.config.artifacts.url)
    except ConfigurationError as problem:
        report_failures({"": str(problem)})
        ending.wait()  # until it is installed or edited, and this process is started again
        return
    copier = ArtifactCopier(store, loaded.home, loaded.host_root)
    _copy_until(ending, copier, loaded.config.artifacts.every_seconds)


def _copy_until(ending: threading.Event, copier: ArtifactCopier, every_seconds: float) -> None:
    """Round after round; one more after `ending` was set, unless the store refused the last."""
    backoff = Backoff(RETRY_SECONDS, MAX_DELAY_SECONDS)
    reported_failures: dict[str, str] = {}
    while True:
        is_last, seconds = ending.is_set(), every_seconds
        try:
            copier.round()
            backoff.failures = 0
            failed = dict(copier.unreadable)
        except (HoustonError, OSError) as problem:  # OSError: a file of the home cannot be read
            seconds = max(every_seconds, backoff.fail(time.monotonic()))
            failed = {**copier.unreadable, "": secret_redaction.redact(str(problem))}
        if failed != reported_failures:
            report_failures(failed)
            reported_failures = failed
        if is_last or (backoff.failures and ending.is_set()):
            return
        ending.wait(seconds)


if __name__ == "__main__":
    main()
