"""The window of one rollout as it goes on: filled again from the journal, one step at a time."""

from collections import deque
from collections.abc import Iterable, Sequence

from houston_daemon.supervision.attention import repeats, wrong
from houston_daemon.supervision.attention.background import Background
from houston_daemon.supervision.attention.catalog import chosen, signals
from houston_daemon.supervision.attention.window import Left, StepSeen, Window, horizon, of_record
from houston_shared.records import Result, StepRecord
from houston_shared.task import Attention


class Watch:
    """The last closed steps of a rollout, as many as signals look at."""

    def __init__(
        self, limits: Attention, records: Iterable[StepRecord] = (), first: str = "local"
    ) -> None:
        """records: closed steps of before, in order; those that are too old are left out.

        first: name of the task's first host.

        Raises ConfigurationError for a signal of a package that is not there.
        """
        self._limits = limits
        self._signals = chosen(limits.signals)
        self._steps: deque[StepSeen] = deque(maxlen=horizon(limits))
        self._background = Background(first)
        self._taken, self._acting = 0, 0
        """Steps that were taken, and those of them that acted."""
        for record in records:
            self.again(record)

    def again(self, record: StepRecord) -> None:
        """Take a step that the journal has already; an open one is left out."""
        if (step := of_record(record)) is not None:
            self._take(step, record.results)

    @property
    def cut_off(self) -> bool:
        """Whether what the last steps have in common may have begun before the first taken."""
        if not self._steps:
            return False
        last = next((step for step in reversed(self._steps) if step.acts), self._steps[-1])
        repeats_all = any(run.same + turn >= self._acting for turn, run in enumerate(last.runs, 1))
        return repeats_all or self._steps[-1].failing >= self._taken

    def _take(self, step: StepSeen, results: Sequence[Result]) -> None:
        step = self._background.followed(step, results)
        self._steps.append(wrong.followed(repeats.followed(step, self._steps), self._steps))
        self._taken, self._acting = self._taken + 1, self._acting + step.acts

    def step(self, step: StepSeen, left: Left, results: Sequence[Result] = ()) -> dict[str, str]:
        """Take a step that closes now; its signals with their reasons. results: of its calls."""
        self._take(step, results)
        return signals(Window(tuple(self._steps), left), self._limits, self._signals)
