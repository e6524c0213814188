"""The supervisor's side of processes that follow the journal: three submit reviews of steps (rules,
scores of a process reward model, drafts of a critic), one sends spans, one sends messages to
people, and one copies what is committed into a store.

They are started, and restarted with backoff if they end unexpectedly or with new settings after an
edit. At the end they are killed, because their files are consistent at any moment, except the
copies, which are completed up to the last event first. What they do is in the packages `review`,
`training.prm`, `telemetry` and `artifacts`. All calls belong to the supervisor's thread.
"""

import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Callable

import msgspec

from houston_shared.backoff import Backoff
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.times_and_counts import pluralize

REVIEW_LOGGER = logging.getLogger("houston.review")
FIRST_START_SECONDS = 2.0
"""After a start rollouts come first."""
RETRY_SECONDS = 5.0
MAX_DELAY_SECONDS = 300.0
RULES_CHILD_MODULE = "houston_daemon.review.live_rules_child"
SCORES_CHILD_MODULE = "houston_daemon.training.prm.live_scores_child"
DRAFTS_CHILD_MODULE = "houston_daemon.review.critic.live_drafts_child"
SPANS_CHILD_MODULE = "houston_daemon.telemetry.span_export_child"
NOTIFIER_CHILD_MODULE = "houston_daemon.review.notify.notifier_child"
COPIER_CHILD_MODULE = "houston_daemon.artifacts.artifact_copier_child"


class ReviewProcess:
    """`update` in every round, `stop` at the end."""

    def __init__(
        self,
        loaded: LoadedConfiguration,
        name: str,
        task: str,
        failure: str,
        module: str,
        settings: Callable[[Configuration], object],
        of: str = "rollout",
    ) -> None:
        """name: of its troubles. task: what it does, in words: `runs rules`. failure: what is
        then wrong with a rollout: `is not judged`. module: what is run. settings: what it is
        started with, started again when that is another; None where it is not wanted. of: what
        it reports on.
        """
        self._loaded = loaded
        self._name, self._task, self._failure, self._module = name, task, failure, module
        self._settings = settings
        self._of = of
        self._started_with: object = None
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        """The beginning of a report whose end has not come."""
        self._backoff = Backoff(RETRY_SECONDS, MAX_DELAY_SECONDS)
        self._started_at = 0.0
        self._failed: dict[str, str] = {}
        self._ended = ""

    def update(self, now: float) -> None:
        """Start it when it is due, hear what it says, notice its end. now: monotonic seconds."""
        settings = self._settings(self._loaded.config)
        if settings != self._started_with:
            self._end()
            self._started_with, self._failed, self._ended = settings, {}, ""
            self._backoff.not_before = min(self._backoff.not_before, now)
        if settings is None:
            return
        if self._backoff.not_before == 0.0:
            self._backoff.not_before = now + FIRST_START_SECONDS
        if self._process is not None:
            self._read_reports(self._process, now)
        elif now >= self._backoff.not_before:
            self._start(now)

    def troubles(self) -> dict[str, str]:
        """What a person must know: it fails, or does not run."""
        if self._ended:
            return {self._name: self._ended}
        if not self._failed:
            return {}
        subject, reason = next(iter(self._failed.items()))
        more = len(self._failed) - 1
        others_text = f"; and of {pluralize(more, f'other {self._of}')}" if more else ""
        of = f"{subject} {self._failure}: " if subject else ""
        return {self._name: f"{of}{reason}{others_text}"}

    def stop(self) -> None:
        """End it for good. Idempotent."""
        self._backoff.not_before = float("inf")
        self._end()

    def finish(self, seconds: float) -> None:
        """Let it finish its remaining work (SIGTERM), and end it for good."""
        self._backoff.not_before = float("inf")
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                words = "the process that %s had not ended after %.1f s: the next start continues"
                REVIEW_LOGGER.warning(words, self._task, seconds)
            with contextlib.suppress(BlockingIOError):
                self._take_reports(_read_output(self._process))
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            _close_output(process)

    def _start(self, now: float) -> None:
        command = [sys.executable, "-m", self._module, str(os.getpid())]
        self._started_at = now
        try:
            self._process = subprocess.Popen(
                [*command, str(self._loaded.home.path), self._loaded.file],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,  # a terminal's Ctrl-C is for the daemon
            )
        except OSError as problem:
            words = f"the process that {self._task} cannot be started: {problem.strerror}"
            self._retry_later(now, words)
            return
        assert self._process.stdout
        os.set_blocking(self._process.stdout.fileno(), False)
        self._rest, self._ended, self._failed = b"", "", {}

    def _read_reports(self, process: "subprocess.Popen[bytes]", now: float) -> None:
        try:
            data = _read_output(process)
        except BlockingIOError:
            return
        if not data:
            self._process = None
            process.kill()
            code = process.wait()
            _close_output(process)
            self._retry_later(now, f"the process that {self._task} ended by itself ({code})")
            return
        self._take_reports(data)

    def _take_reports(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._failed = msgspec.json.decode(line, type=dict[str, dict[str, str]])["failed"]
            for subject, reason in self._failed.items():
                every = f"all {self._of}s"
                REVIEW_LOGGER.warning("%s: %s: %s", self._name, subject or every, reason)

    def _retry_later(self, now: float, problem: str) -> None:
        steady = now - self._started_at > MAX_DELAY_SECONDS
        REVIEW_LOGGER.warning("%s; again in %g s", problem, self._backoff.fail(now, first=steady))
        self._ended = problem


def _read_output(process: "subprocess.Popen[bytes]") -> bytes:
    """What it has said; empty once it has ended. Raises BlockingIOError where it said nothing."""
    assert process.stdout
    return os.read(process.stdout.fileno(), 65_536)


def _close_output(process: "subprocess.Popen[bytes]") -> None:
    if process.stdout is not None:
        process.stdout.close()


def live_rules_process(loaded: LoadedConfiguration) -> ReviewProcess:
    """Rules, unless `[daemon] live_rules` is off."""
    return ReviewProcess(
        loaded,
        "rules",
        "runs rules",
        "is not judged",
        RULES_CHILD_MODULE,
        lambda config: True if config.daemon.live_rules else None,
    )


def live_scores_process(loaded: LoadedConfiguration) -> ReviewProcess:
    """Scores, where `[review] process_reward` names a model."""
    return ReviewProcess(
        loaded,
        "process_reward",
        "scores decisions",
        "is not scored",
        SCORES_CHILD_MODULE,
        lambda config: config.review if config.review.process_reward else None,
    )


def live_drafts_process(loaded: LoadedConfiguration) -> ReviewProcess:
    """A critic's drafts, where `[review] drafts` asks for them."""
    return ReviewProcess(
        loaded,
        "critic",
        "has guidance drafted",
        "has no draft",
        DRAFTS_CHILD_MODULE,
        lambda config: config.review if config.review.drafts == "attention" else None,
    )


def span_export_process(loaded: LoadedConfiguration) -> ReviewProcess:
    """Spans, where `[telemetry] otlp` names a collector."""
    return ReviewProcess(
        loaded,
        "telemetry",
        "sends spans",
        "has no spans",
        SPANS_CHILD_MODULE,
        lambda config: config.telemetry if config.telemetry.otlp else None,
    )


def notifier_process(loaded: LoadedConfiguration) -> ReviewProcess:
    """Messages to people who are away, where `[notify] urls` says where to."""
    return ReviewProcess(
        loaded,
        "notify",
        "sends messages to people",
        "has no messages",
        NOTIFIER_CHILD_MODULE,
        lambda config: config.notify if config.notify.urls else None,
        of="service",
    )


def artifact_copier_process(loaded: LoadedConfiguration) -> ReviewProcess:
    """Copies in a store, where `[artifacts] url` names one."""
    return ReviewProcess(
        loaded,
        "artifacts",
        "copies into the store",
        "has snapshots that are not copied",
        COPIER_CHILD_MODULE,
        lambda config: config.artifacts if config.artifacts.url else None,
    )
