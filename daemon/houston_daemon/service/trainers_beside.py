"""Trainers that the daemon did not start: whether one is at work in a folder, and how one ended.

A trainer beside the daemon tells it how it ends; it cannot while no daemon runs, or when it was
killed. A run of the daemon's own has one where a person went on with it while no daemon ran: of
that one nobody tells anything. Their folder knows: what they wrote last, and whether anybody is at
work there. It starts and ends no process.
"""

from houston_daemon.training.sft import turn
from houston_shared import training_progress
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store.bodies_training import RunState
from houston_shared.store.queries.training_runs import TrainingRun
from houston_shared.training_progress import Progress

BEGIN_SECONDS = 60.0
"""What a trainer may take from being announced to holding its folder: it imports much."""
ELSEWHERE = (
    "a trainer that this daemon did not start is at work in its folder: it goes on when that one is"
    " over, which can be ended where it was started"
)
"""Why a run of the daemon's own is not started, and not ended either."""
_ENDS: dict[str, RunState] = {"finished": "finished", "failed": "failed", "cancelled": "cancelled"}


class Beside:
    """Used from the supervisor's thread only."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._empty: dict[str, float] = {}
        """Run → since when nobody was seen at work in its folder, monotonic."""

    def ended(self, run: TrainingRun, now: float) -> tuple[RunState, str] | None:
        """State and reason of a run that is over; None while it goes on, or may be about to."""
        if end := _end(run, training_progress.read(self._home, run.id)):
            self._empty.pop(run.id, None)
            return end
        if at_work(self._home, run.id):
            self._empty.pop(run.id, None)
        elif now - self._empty.setdefault(run.id, now) >= BEGIN_SECONDS:
            del self._empty[run.id]
            return "failed", "its process was killed"
        return None


def at_work(home: Home, run: str) -> bool:
    """Whether a trainer is at work in the folder of a run, whoever started it."""
    try:
        turn.check(training_progress.folder(home, run))
    except HoustonError:
        return True
    return False


def ended_elsewhere(home: Home, run: TrainingRun) -> tuple[RunState, str] | None:
    """State and reason of a run of the daemon's own that a trainer of somebody else ended.

    None where that one was killed, or the daemon's own was there last: the daemon goes on with it.
    """
    progress = training_progress.read(home, run.id)
    return _end(run, progress) if progress is not None and progress.alone else None


def _end(run: TrainingRun, said: Progress | None) -> tuple[RunState, str] | None:
    """State and reason, where the trainer of a run said that it is over."""
    state = _ENDS.get(said.state) if said else None
    if said is None or state is None:
        return None
    if state == "finished":
        again = f"houston train sft --resume {run.id}"
        return state, "" if run.policy else f"no daemon took its policy: {again}"
    return state, said.message if state == "failed" else ""
