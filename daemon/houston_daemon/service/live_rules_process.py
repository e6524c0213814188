"""The process that runs rules on rollouts as they go on, as the supervisor holds it.

Started, heard, started again with backoff when it ends by itself, killed at the end: it keeps
nothing. What it does is the room `review`. All calls belong to the supervisor's thread.
"""

import logging
import os
import subprocess
import sys

import msgspec

from houston_shared.backoff import Backoff
from houston_shared.config import LoadedConfiguration
from houston_shared.times_and_counts import pluralize

RULES_LOGGER = logging.getLogger("houston.rules")
RULES_FIRST_SECONDS = 2.0
"""After a start rollouts come first."""
RULES_RETRY_SECONDS = 5.0
RULES_LONGEST_DELAY_SECONDS = 300.0


class LiveRulesProcess:
    """`update` in every round, `stop` at the end."""

    def __init__(self, loaded: LoadedConfiguration) -> None:
        self._loaded = loaded
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        """The beginning of a report whose end has not come."""
        self._backoff = Backoff(RULES_RETRY_SECONDS, RULES_LONGEST_DELAY_SECONDS)
        self._began = 0.0
        self._failed: dict[str, str] = {}
        self._ended = ""

    def update(self, now: float) -> None:
        """Start it when it is due, hear what it says, notice its end. now: monotonic seconds."""
        if not self._loaded.config.daemon.live_rules:
            return
        if self._backoff.not_before == 0.0:
            self._backoff.not_before = now + RULES_FIRST_SECONDS
        if self._process is not None:
            self._read_reports(self._process, now)
        elif now >= self._backoff.not_before:
            self._start(now)

    def troubles(self) -> dict[str, str]:
        """What a person must know: a rule fails, or none runs."""
        if self._ended:
            return {"rules": self._ended}
        if not self._failed:
            return {}
        rollout, reason = next(iter(self._failed.items()))
        more = len(self._failed) - 1
        others_text = f"; and of {pluralize(more, 'other rollout')}" if more else ""
        of = f"{rollout} is not judged: " if rollout else ""
        return {"rules": f"{of}{reason}{others_text}"}

    def stop(self) -> None:
        """End it. Idempotent."""
        process, self._process = self._process, None
        self._backoff.not_before = float("inf")
        if process is not None:
            process.kill()
            process.wait()
            _close_output(process)

    def _start(self, now: float) -> None:
        config = "" if self._loaded.source == "defaults" else self._loaded.source
        command = [sys.executable, "-m", "houston_daemon.review.live_rules_child", str(os.getpid())]
        self._began = now
        try:
            self._process = subprocess.Popen(
                [*command, str(self._loaded.home.path), config],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,  # a terminal's Ctrl-C is for the daemon
            )
        except OSError as problem:
            self._retry_later(now, f"rules cannot be run beside rollouts: {problem.strerror}")
            return
        assert self._process.stdout
        os.set_blocking(self._process.stdout.fileno(), False)
        self._rest, self._ended, self._failed = b"", "", {}

    def _read_reports(self, process: "subprocess.Popen[bytes]", now: float) -> None:
        assert process.stdout
        try:
            data = os.read(process.stdout.fileno(), 65_536)
        except BlockingIOError:
            return
        if not data:
            self._process = None
            process.kill()
            code = process.wait()
            _close_output(process)
            self._retry_later(now, f"the process that runs rules ended by itself ({code})")
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._failed = msgspec.json.decode(line, type=dict[str, dict[str, str]])["failed"]
            for rollout, reason in self._failed.items():
                RULES_LOGGER.warning("rules: %s: %s", rollout or "all rollouts", reason)

    def _retry_later(self, now: float, problem: str) -> None:
        steady = now - self._began > RULES_LONGEST_DELAY_SECONDS
        RULES_LOGGER.warning("%s; again in %g s", problem, self._backoff.fail(now, first=steady))
        self._ended = problem


def _close_output(process: "subprocess.Popen[bytes]") -> None:
    if process.stdout is not None:
        process.stdout.close()
