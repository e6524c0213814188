"""What each rollout's newest step holds, in memory, so that its next message needs no SELECT.

The recorder is the only writer, so what it has just written need not be read again: of a rollout
whose newest step it saw open, it knows which keys are taken and what may follow. Whatever is not
known here is looked up (`checks`); nothing is refused here.

Kept in step with the database by two rules: every event of a rollout forgets it (`Journal.append`),
and only who knows what the event did notes it again; a transaction that is undone forgets all.
"""

from dataclasses import dataclass, field

from houston_shared.wire import FromWorker, StoreIntent, StoreObservation, StoreResult, StoreSample

NUMBER_LIMIT = 2**31
"""No step, attempt or index is as large."""


@dataclass(slots=True)
class Newest:
    """The newest step of a rollout that is alive and nobody cancels."""

    lease: int
    step: int
    attempt: int
    waiting: bool
    """Whether guidance is queued."""
    closed: bool = False
    intents: set[int] = field(default_factory=set)
    """Indexes of calls that were begun."""
    results: set[int] = field(default_factory=set)


class Recent:
    """By rollout."""

    def __init__(self) -> None:
        self._newest: dict[str, Newest] = {}

    def forget(self, rollout: str) -> None:
        """Something happened to it."""
        self._newest.pop(rollout, None)

    def forget_all(self) -> None:
        """What was noted may have been undone."""
        self._newest.clear()

    def note(self, rollout: str, newest: Newest) -> None:
        """Its newest step, as the event that was just appended left it."""
        self._newest[rollout] = newest

    def follows(self, message: FromWorker) -> Newest | None:
        """The newest step if the message surely follows it: right lease, next in order, new key.

        None says nothing but that the database must be asked.
        """
        newest = self._newest.get(message.rollout)
        if newest is None or message.lease != newest.lease:
            return None
        kind = type(message)
        if kind is StoreSample:
            fits = _next_step(newest, message)
        else:
            fits = not newest.closed and _within(newest, message)
        return newest if fits else None


def advanced(newest: Newest, message: FromWorker) -> Newest:
    """The newest step once a message that follows it is stored; `newest` itself is used up."""
    match message:
        case StoreSample(step=step):
            return Newest(newest.lease, step, 1, newest.waiting)
        case StoreIntent(index=index):
            newest.intents.add(index)
        case StoreResult(index=index):
            newest.results.add(index)
        case StoreObservation():
            newest.closed = True
    return newest


def _next_step(newest: Newest, message: FromWorker) -> bool:
    match message:
        case StoreSample(part="sample", attempt=1, step=step):
            return newest.closed and step == newest.step + 1
    return False


def _within(newest: Newest, message: FromWorker) -> bool:
    """Whether it belongs to the open step, is new there, and what it needs is there."""
    match message:
        case StoreIntent(step=newest.step, attempt=newest.attempt, index=index):
            return index not in newest.intents and 0 <= index < NUMBER_LIMIT
        case StoreResult(step=newest.step, attempt=newest.attempt, index=index):
            return index in newest.intents and index not in newest.results
        case StoreObservation(step=newest.step, attempt=newest.attempt):
            return newest.intents == newest.results and not newest.waiting
    return False
