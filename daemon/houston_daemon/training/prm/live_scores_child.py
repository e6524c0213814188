"""Scores decisions of running rollouts: a process that follows the journal and has scores stored.

`python -m houston_daemon.training.prm.live_scores_child PARENT HOME CONFIG`, started and watched by
the supervisor where `[review] process_reward` names a model. It is the only process of a daemon
that imports torch, and only once there is a model. It wakes after each commit, reads closed steps
that the model has not scored, and sends their scores to the recorder, which stores them. Unfinished
rollouts come before ended ones, and older steps before newer ones. Nothing is kept on disk: a new
process finds in the journal which steps lack a score. It reports on stdout what keeps it from
scoring, as `service.watched_child` does.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import zmq

from houston_daemon.service.parent_death import end_with_parent
from houston_daemon.service.watched_child import report_failures
from houston_daemon.training.prm.recorded_decisions import (
    DecisionReader,
    DecisionScorer,
    RecordedDecision,
    score_decisions,
)
from houston_daemon.training.prm.reward_policy import (
    RewardPolicy,
    find_reward_policy,
    require_scorer_packages,
)
from houston_shared import secret_redaction
from houston_shared.config import LoadedConfiguration, load_configuration
from houston_shared.control_client import send_with_retry
from houston_shared.control_messages import StepScore, StoreProcessRewards
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store.journal_events import ReadPlan, RunSql
from houston_shared.store.store_reader import Reader, ReadFailed
from houston_shared.wire import NOTICE_START

POLL_SECONDS = 1.0
"""How often is looked whether something was committed, where no notice comes."""
GATHER_SECONDS = 1.0
"""How long steps are gathered after a notice: several at once cost less than each alone."""
RETRY_SECONDS = 5.0
STEPS_PER_BATCH = 32
"""Steps that are read, scored and sent together at most."""
FIRST_BATCH = 4
SHORT_BATCH_SECONDS, LONG_BATCH_SECONDS = 0.5, 2.0
"""Processor time under which the next batch is twice as large, and over which it is half."""
REST_PER_WORK = 9.0
"""On a busy machine it rests so many times as long as it worked: at most a tenth of one core."""
LONGEST_REST_SECONDS = 60.0
DAY_MICROSECONDS = 86_400 * 10**6


class ClosedStep(NamedTuple):
    """A closed step without a score; sorts as steps are scored."""

    ended: bool
    """Whether its rollout has ended."""
    seq: int
    """The event that closed it."""
    rollout: str
    step: int
    attempt: int


_CHANGED_SQL = """
SELECT id, last_seq FROM rollouts WHERE last_seq > ?1 AND steps > 0 AND (
    state NOT IN ('finished', 'failed', 'cancelled')
    OR updated_at >= (SELECT max(updated_at) FROM rollouts) - ?2)
"""
_UNSCORED_SQL = """
SELECT r.state IN ('finished', 'failed', 'cancelled'), s.observation_seq, s.rollout, s.step,
       s.attempt
FROM rollouts r JOIN steps s ON s.rollout = r.id
WHERE r.id = ?1 AND s.step >= ?2 AND s.current AND s.observation_seq IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM process_rewards p WHERE p.rollout = s.rollout AND p.step = s.step
                AND p.attempt = s.attempt AND p.policy = ?3)
ORDER BY s.step LIMIT ?4
"""


def _changed_rollouts(since: int) -> ReadPlan[dict[str, int]]:
    rows = yield RunSql(_CHANGED_SQL, (since, DAY_MICROSECONDS))
    return dict(rows)


def _unscored_steps(
    positions: dict[str, int], policy: str, most: int
) -> ReadPlan[dict[str, list[ClosedStep]]]:
    """By rollout, its first closed steps without a score, from a step on."""
    unscored: dict[str, list[ClosedStep]] = {}
    for rollout, first in positions.items():
        rows = yield RunSql(_UNSCORED_SQL, (rollout, first, policy, most))
        unscored[rollout] = [ClosedStep(bool(ended), *rest) for ended, *rest in rows]
    return unscored


def _policy_counts() -> ReadPlan[tuple[int, int]]:
    """The newest event and the number of policies: others when one is registered."""
    rows = yield RunSql("SELECT coalesce(max(seq), 0), count(*) FROM policies")
    newest, count = rows[0]
    return newest, count


def next_batch_size(steps: int, work: float) -> int:
    """How many steps the next batch has. work: processor seconds that one of `steps` took."""
    if work < SHORT_BATCH_SECONDS:
        return min(STEPS_PER_BATCH, 2 * steps)
    return max(1, steps // 2) if work > LONG_BATCH_SECONDS else steps


def rest_seconds(work: float, load: float, cores: int) -> float:
    """How long it rests after so many processor seconds; not at all where a core is free.

    load: processes that want to run, on average of the last minute, itself included.
    """
    return min(LONGEST_REST_SECONDS, REST_PER_WORK * work) if load > cores else 0.0


class ScoreFollower:
    """Scores what closes."""

    def __init__(
        self, loaded: LoadedConfiguration, load_scorer: Callable[[Path, str], DecisionScorer]
    ) -> None:
        """load_scorer: makes the model in a folder ready on a device."""
        self._loaded = loaded
        self._settings = loaded.config.review
        self._load_scorer = load_scorer
        self._reader = Reader(loaded.home)
        self._decisions = DecisionReader(self._reader)
        self._policy: RewardPolicy | None = None
        self._scorer: DecisionScorer | None = None
        self._seq = 0
        """Rollouts without an event behind this one are not looked at again."""
        self._positions: dict[str, int] = {}
        """Rollouts that may have steps without a score → where to look from."""
        self._first_unscored: dict[str, int] = {}
        """The same of every rollout that was looked at."""
        self._policies = (0, 0)
        """What there was of policies when the model was chosen."""
        self._failed: dict[str, str] = {}
        """By rollout, why steps of it were passed over: something that they are read with is
        damaged."""
        self._reported: dict[str, str] = {}
        self._batch = FIRST_BATCH

    def run(self) -> None:
        """Follow forever; report an error that stops all scoring, and try again."""
        notices = CommitNotices(self._loaded.home, self._reader)
        while True:
            try:
                began = time.process_time()
                scored = self.round()
                self._report("")
                if not scored:
                    notices.wait()
                    continue
                work = time.process_time() - began
                self._batch = next_batch_size(self._batch, work)
                time.sleep(rest_seconds(work, os.getloadavg()[0], os.cpu_count() or 1))
            except HoustonError as problem:  # no model, or the daemon goes down
                self._reader.close()
                self._report(_sentence(problem))
                time.sleep(RETRY_SECONDS)

    def round(self) -> int:
        """Score one batch; how many steps had none before. Raises HoustonError for no model."""
        self._choose_model()
        assert self._policy is not None and self._scorer is not None
        changed = self._reader.run(_changed_rollouts(self._seq))
        self._seq = max([self._seq, *changed.values()])
        for rollout in changed:
            self._positions[rollout] = self._first_unscored.get(rollout, 1)
        steps = self._reader.run(_unscored_steps(self._positions, self._policy.name, self._batch))
        for rollout in [rollout for rollout, lacking in steps.items() if not lacking]:
            del self._positions[rollout]
        batch = sorted(step for lacking in steps.values() for step in lacking)[: self._batch]
        self._score(batch)
        return len(batch)

    def _choose_model(self) -> None:
        """Load the model that is meant now: a newer one of its name may have been trained."""
        policies = self._reader.run(_policy_counts())
        if self._scorer is not None and policies == self._policies:
            return
        policy = find_reward_policy(self._loaded.home, self._reader, self._settings.process_reward)
        self._policies = policies
        if policy == self._policy:
            return
        require_scorer_packages()
        self._scorer = self._load_scorer(policy.folder, self._settings.device)
        self._policy, self._seq = policy, 0
        self._positions, self._first_unscored, self._failed = {}, {}, {}

    def _score(self, batch: Iterable[ClosedStep]) -> None:
        decisions: list[tuple[ClosedStep, RecordedDecision]] = []
        ordered = sorted(batch, key=lambda closed: (closed.rollout, closed.step))
        for rollout, group in groupby(ordered, key=lambda closed: closed.rollout):
            closed_steps = list(group)
            last = closed_steps[-1]
            try:
                read = self._decisions.read(rollout, [closed.step for closed in closed_steps])
            except ReadFailed:  # it may succeed when it is tried again
                raise
            except HoustonError as problem:
                self._failed[rollout] = _sentence(problem)
                self._look_from(rollout, last.step + 1)
                continue
            self._failed.pop(rollout, None)
            by_step = {decision.step: decision for decision in read}
            decisions += [
                (closed, by_step[closed.step]) for closed in closed_steps if closed.step in by_step
            ]
            # From the last one on: another attempt may replace it. What is gone is left behind.
            self._look_from(rollout, last.step + (last.ended and not read))
        assert self._scorer is not None
        scores = score_decisions(self._scorer, [decision for _, decision in decisions])
        scored = [(closed, score) for (closed, _), score in zip(decisions, scores, strict=True)]
        if scored:
            self._send(scored)

    def _send(self, scored: Sequence[tuple[ClosedStep, float]]) -> None:
        """All in one message, which is one transaction."""
        assert self._policy is not None
        scores = tuple(
            StepScore(
                rollout=closed.rollout,
                step=closed.step,
                attempt=closed.attempt,
                score=score,
                weak=score < self._settings.weak_decision,
            )
            for closed, score in scored
        )
        message = StoreProcessRewards(policy=self._policy.name, scores=scores)
        maybe = "Some scores may have been stored."
        answer = send_with_retry(self._loaded.home, message, maybe, "houston rollout list")
        for place in reversed(answer.skipped):  # replaced since: what stands now comes next
            self._look_from(scored[place][0].rollout, scored[place][0].step)

    def _look_from(self, rollout: str, step: int) -> None:
        self._positions[rollout] = self._first_unscored[rollout] = step

    def _report(self, problem: str) -> None:
        failed = {**self._failed, "": problem} if problem else dict(self._failed)
        if failed != self._reported:
            self._reported = failed
            report_failures(failed)


def _sentence(problem: HoustonError) -> str:
    """What a line of the status says: cause and what to do."""
    return f"{problem.cause} next: {problem.next}" if problem.next else problem.cause


class CommitNotices:
    """Wakes when something was committed: by the recorder's notices, else once a second."""

    def __init__(self, home: Home, reader: Reader) -> None:
        self._reader = reader
        self._socket = zmq.Context(1).socket(zmq.SUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, 4096)
        self._socket.setsockopt(zmq.RCVHWM, 1000)
        self._socket.subscribe(NOTICE_START)
        self._socket.connect(home.socket("live"))
        self._version = (0, 0)

    def wait(self) -> None:
        """Return when there may be something new."""
        while (version := self._reader.data_version()) == self._version:
            if self._socket.poll(int(1000 * POLL_SECONDS)):
                time.sleep(GATHER_SECONDS)
                while self._socket.poll(0):
                    self._socket.recv_multipart()
        self._version = version


def load_process_reward_scorer(folder: Path, device: str) -> DecisionScorer:
    """The model in `folder`. Raises HoustonError for files that are no such model."""
    from houston_daemon.training.prm.prm_scorer import load_scorer  # torch: once there is a model

    return load_scorer(folder, device)


def main() -> None:
    """The process: ends with its parent."""
    parent, home, config = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    if end_with_parent(parent):
        # Only what nobody else wants of the processors: nice would still take a share of each.
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        loaded = load_configuration(home, config or None)
        secret_redaction.install_secrets(loaded.config)
        # Read by torch as it is imported: threads of its own would take every core.
        os.environ["OMP_NUM_THREADS"] = str(loaded.config.review.threads)
        ScoreFollower(loaded, load_process_reward_scorer).run()


if __name__ == "__main__":
    main()
