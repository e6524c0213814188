"""Runs beside the daemon whose trainer is gone: nobody else would ever say how they ended.

A trainer beside the daemon tells it how it ends; it cannot while no daemon runs, or when it was
killed. Its folder knows: what it wrote last, and whether anybody is at work there. It starts and
ends no process.
"""

from houston_daemon.training.sft import turn
from houston_shared import training_progress
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store.bodies_training import RunState
from houston_shared.store.queries.training_runs import TrainingRun

BEGIN_SECONDS = 60.0
"""What a trainer may take from being announced to holding its folder: it imports much."""
_ENDS: dict[str, RunState] = {"finished": "finished", "failed": "failed", "cancelled": "cancelled"}


class Beside:
    """Used from the supervisor's thread only."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._empty: dict[str, float] = {}
        """Run → since when nobody was seen at work in its folder, monotonic."""

    def ended(self, run: TrainingRun, now: float) -> tuple[RunState, str] | None:
        """State and reason of a run that is over; None while it goes on, or may be about to."""
        progress = training_progress.read(self._home, run.id)
        state = _ENDS.get(progress.state) if progress else None
        if progress is not None and state is not None:
            self._empty.pop(run.id, None)
            return state, self._reason(run, state, progress.message)
        if not self._nobody(run):
            self._empty.pop(run.id, None)
        elif now - self._empty.setdefault(run.id, now) >= BEGIN_SECONDS:
            del self._empty[run.id]
            return "failed", "its process was killed"
        return None

    def _nobody(self, run: TrainingRun) -> bool:
        try:
            turn.check(training_progress.folder(self._home, run.id))
        except HoustonError:
            return False
        return True

    def _reason(self, run: TrainingRun, state: RunState, said: str) -> str:
        if state == "finished":
            again = f"houston train sft --resume {run.id}"
            return "" if run.policy else f"no daemon took its policy: {again}"
        return said if state == "failed" else ""
