"""Drafts of guidance as attention rises: a process that asks the critic about running rollouts.

`python -m houston_daemon.review.critic.live_drafts_child PARENT HOME CONFIG`, started and watched
by the supervisor if `[review] drafts = "attention"`. It finds the rollouts that the signals of
their last steps (docs/attention.md) would show to a person, and runs `houston critique R --draft`
for the most urgent one, one at a time. It sends nothing to an agent. On its stdout it reports why
nothing can be drafted, as `service.watched_child` does.
"""

import os
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence

from houston_daemon.service.parent_death import end_with_parent
from houston_daemon.service.watched_child import report_failures
from houston_shared.command_output import read_error
from houston_shared.config import LoadedConfiguration, load_configuration
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store import attention_ranking, draft_queries
from houston_shared.store.attention_ranking import (
    SIGNAL_WEIGHTS,
    WEAK_DECISIONS_WEIGHT,
    RolloutNeed,
    rank_rollouts,
)
from houston_shared.store.draft_queries import CriticDraft
from houston_shared.store.rollout_queries import RolloutRow
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import now_us

POLL_SECONDS = 5.0
MIN_NEED_WEIGHT = WEAK_DECISIONS_WEIGHT
"""Of a reason for which a critic is asked; lighter ones are common where all goes well."""
MIN_STEPS = 8
"""Steps between two questions about one rollout: what was said needs time to be heard and followed,
and of what a critic found right there is nothing new."""
ANSWER_SECONDS = 900.0
"""How long a critic may take."""
_REASONS = frozenset({*SIGNAL_WEIGHTS, "weak_decisions"})
"""Reasons that an agent's own doing gives; a paused rollout or a full disk needs no critic."""


def has_agent_problem(need: RolloutNeed) -> bool:
    """Whether the agent's own actions call for a person."""
    return any(each.kind in _REASONS and each.weight >= MIN_NEED_WEIGHT for each in need.reasons)


def calls_for_draft(need: RolloutNeed, drafts: Sequence[CriticDraft], asked: int = 0) -> bool:
    """Whether a critic is to read a rollout now. drafts: those that it has, the oldest first.
    asked: how many steps it had when a critic read it last; 0 where none did."""
    rollout = need.overview.rollout
    if rollout.state != "running" or not has_agent_problem(need):
        return False
    if drafts and drafts[-1].state == "open":
        return False
    last_read = max(asked, drafts[-1].step if drafts else 0)
    return not last_read or rollout.steps >= last_read + MIN_STEPS


def next_rollout(
    home: Home, resting: Collection[str], asked: Mapping[str, int]
) -> RolloutRow | None:
    """The rollout that most needs a draft; None where none does.

    resting: rollouts to skip now, so that one does not keep the critic from the others. asked: how
    many steps each had when a critic read it last.
    """
    running = attention_ranking.read_rollout_overviews(state="running", bodies=False)
    with Reader(home) as reader:
        for need in filter(has_agent_problem, rank_rollouts(reader.run(running), now_us())):
            rollout = need.overview.rollout
            if rollout.id in resting:
                continue
            drafts = reader.run(draft_queries.list_drafts(rollout.id))
            if calls_for_draft(need, drafts, asked.get(rollout.id, 0)):
                return rollout
    return None


class DraftFollower:
    """Asks, and reports why nothing came."""

    def __init__(self, loaded: LoadedConfiguration, config: str) -> None:
        """config: path of the configuration; empty for the default one."""
        self._home = loaded.home
        self._config = config
        self._not_before: dict[str, float] = {}
        """By rollout, when it is asked about again after that failed, monotonic."""
        self._steps_at_request: dict[str, int] = {}
        """By rollout, how many steps it had when the critic read it last."""
        self._failed: dict[str, str] = {}

    def run(self) -> None:
        """Look and ask, for good."""
        while True:
            self.look()
            time.sleep(POLL_SECONDS)

    def look(self) -> None:
        """Ask about the rollout that most needs it, and report a failure. The failure of a rollout
        that has ended is reported only until its next try would be due."""
        now = time.monotonic()
        self._not_before = {name: at for name, at in self._not_before.items() if at > now}
        failed = {name: self._failed[name] for name in self._failed.keys() & self._not_before}
        try:
            rollout = next_rollout(self._home, self._not_before, self._steps_at_request)
        except HoustonError as problem:  # the daemon goes down, or the disk is full
            rollout, failed[""] = None, str(problem)
        if rollout is not None:
            if reason := self._ask(rollout.id):
                failed[rollout.id] = reason
                self._not_before[rollout.id] = time.monotonic() + ANSWER_SECONDS / 10
            else:
                self._steps_at_request[rollout.id] = rollout.steps
        if failed != self._failed:
            self._failed = failed
            report_failures(failed)

    def _ask(self, rollout: str) -> str:
        """Why no draft came; empty where one did, or there was nothing to say."""
        words = [sys.executable, "-m", "houston_shared.command", "critique", rollout, "--draft"]
        environment = {**os.environ, "HOUSTON_HOME": str(self._home.path)}
        if self._config:
            environment["HOUSTON_CONFIG"] = self._config
        try:
            child = subprocess.run(
                words, env=environment, capture_output=True, text=True, timeout=ANSWER_SECONDS,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"the critic did not answer within {ANSWER_SECONDS / 60:.0f} minutes"
        return _reason(child.stderr) if child.returncode else ""


def _reason(stderr: str) -> str:
    """Why a command failed: its error, before which notes may stand; else its last words."""
    if error := read_error(stderr):
        return error
    lines = [line for line in stderr.splitlines() if line and not line[0].isspace()]
    return lines[-1] if lines else "it ended without a word"


def main() -> None:
    """The process: ends with its parent."""
    parent, home, config = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    if end_with_parent(parent):
        DraftFollower(load_configuration(home, config or None), config).run()


if __name__ == "__main__":
    main()
