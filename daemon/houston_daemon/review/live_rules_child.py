"""Rules on rollouts as they run: a process that follows the journal and submits verdicts.

`python -m houston_daemon.review.live_rules_child PARENT HOME CONFIG`, started and watched by the
supervisor. It is a separate process, at a low priority, so rules take no time from the recorder's
interpreter (docs/decisions.md#live-rules-are-a-process-beside-the-daemon). It reads what is
committed and sends verdicts that differ; the recorder writes them. Nothing is kept on disk. On its
stdout it reports on which rollouts a rule failed, as `service.watched_child` does.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

from houston_daemon.review.rollout_trace import RolloutTrace, TextsUnavailable, read_trace
from houston_daemon.review.rules.rule_catalog import RuleFailed
from houston_daemon.review.verdict_updates import rule_verdict_messages, send_verdicts
from houston_daemon.service.watched_child import begin_watched_child, report_failures
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.records import StepRecord
from houston_shared.store.annotation_queries import read_verdicts_with_reasons
from houston_shared.store.journal_events import ReadPlan, RunSql
from houston_shared.store.store_reader import Reader

POLL_SECONDS = 1.0
"""How often is looked whether something was committed."""
RETRY_SECONDS = 5.0
REST_PER_WORK = 9.0
"""After each rollout it rests so many times as long as that took: at most a tenth of one core."""
DAY_MICROSECONDS = 86_400 * 10**6
MAX_CACHED_CHARACTERS = 100_000_000
"""Of observations that are kept in memory, so that only new steps are read."""
_ROLLOUTS_QUERY = """
SELECT r.id, r.state IN ('finished', 'failed', 'cancelled'), (
    SELECT s.observation_seq FROM steps s WHERE s.rollout = r.id AND s.current = 1
    AND s.observation_seq IS NOT NULL ORDER BY s.step DESC LIMIT 1)
FROM rollouts r WHERE r.steps > 0 AND (
    r.state NOT IN ('finished', 'failed', 'cancelled')
    OR r.updated_at >= (SELECT max(updated_at) FROM rollouts) - ?)
ORDER BY r.updated_at DESC
"""


class RolloutPosition(NamedTuple):
    """How far a rollout is, as rules see it."""

    rollout: str
    ended: bool
    newest: int | None
    """Event of its newest observation; None where no closed step is its own."""


class RuleFollower:
    """Runs rules on what changes."""

    def __init__(self, loaded: LoadedConfiguration) -> None:
        self._loaded = loaded
        self._reader = Reader(loaded.home)
        self._looked: dict[str, RolloutPosition] = {}
        self._traces: dict[str, RolloutTrace] = {}
        self._failed: dict[str, str] = {}
        self._reported: dict[str, str] = {}
        self._version: tuple[int, int] | None = None

    def run(self) -> None:
        """Follow the journal forever; general failures are reported and retried."""
        while True:
            try:
                self._failed.pop("", None)
                version = self._reader.data_version()
                if version != self._version:
                    self.round()
                    self._version = version
            except HoustonError as problem:  # the daemon goes down, or the disk is full
                self._reader.close()
                self._failed[""] = str(problem)
                time.sleep(RETRY_SECONDS)
            self._report()
            time.sleep(POLL_SECONDS)

    def round(self) -> None:
        """Look at every rollout that went on."""
        positions = self._reader.run(_rollout_positions())
        rollouts = {position.rollout for position in positions}
        for cache in (self._looked, self._traces, self._failed):
            for rollout in cache.keys() - rollouts:
                del cache[rollout]
        for position in positions:
            if self._looked.get(position.rollout) != position:
                began = time.monotonic()
                self._look(position)
                self._report()
                time.sleep((time.monotonic() - began) * REST_PER_WORK)

    def _look(self, position: RolloutPosition) -> None:
        self._failed.pop(position.rollout, None)
        cached = self._traces.pop(position.rollout, None)
        try:
            trace = read_trace(self._reader, position.rollout, cached.steps if cached else ())
            stored = self._reader.run(read_verdicts_with_reasons(position.rollout))
            messages = rule_verdict_messages(trace, stored)
        except TextsUnavailable:  # archived: nothing is said of it any more
            self._looked[position.rollout] = position
            return
        except (RuleFailed, ConfigurationError) as problem:
            self._failed[position.rollout] = problem.cause
            self._looked[position.rollout] = position
            return
        send_verdicts(self._loaded.home, messages)
        self._looked[position.rollout] = position
        if not position.ended:
            self._cache_trace(trace)

    def _cache_trace(self, trace: RolloutTrace) -> None:
        """Keep what was read; what was looked at longest ago is forgotten first."""
        self._traces[trace.rollout] = trace
        sizes = {name: _observation_characters(old.steps) for name, old in self._traces.items()}
        while len(self._traces) > 1 and sum(sizes.values()) > MAX_CACHED_CHARACTERS:
            oldest = next(iter(self._traces))
            del self._traces[oldest], sizes[oldest]

    def _report(self) -> None:
        if self._failed != self._reported:
            self._reported = dict(self._failed)
            report_failures(self._reported)


def _observation_characters(steps: Sequence[StepRecord]) -> int:
    return sum(len(result.text) for step in steps for result in step.results)


def _rollout_positions() -> ReadPlan[list[RolloutPosition]]:
    rows = yield RunSql(_ROLLOUTS_QUERY, (DAY_MICROSECONDS,))
    return [RolloutPosition(rollout, bool(ended), newest) for rollout, ended, newest in rows]


def main() -> None:
    """The process: ends with its parent."""
    if loaded := begin_watched_child():
        RuleFollower(loaded).run()


if __name__ == "__main__":
    main()
