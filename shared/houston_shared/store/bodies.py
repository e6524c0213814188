"""Bodies of journal events that are not a worker's own words: what each `kind` holds.

Where a body extends a record (`StoredSample` of `SampleBody`), the record's type reads it too: a
reader that does not need the extra fields need not know of them. Fields are only ever added, with
a default. `TYPES` is the whole list of kinds; who writes them and when is the recorder's business.
"""

from houston_shared.records import (
    ForkBody,
    GuidanceMode,
    Head,
    Intent,
    ObservationBody,
    Record,
    Result,
    RolloutSpec,
    SampleBody,
    StateChange,
    TaskRecord,
)


class DaemonStarted(Record, frozen=True):
    """A daemon opened the home for writing."""

    epoch: int
    pid: int
    version: str


class StoredSpec(RolloutSpec, frozen=True):
    """A rollout was queued."""

    by: str = ""
    """`person:<name>`."""
    uid: int | None = None
    request: str = ""
    """Idempotency key of the start."""
    sandbox: str = "bubblewrap"
    """Kind of the task's sandbox."""


class Assigned(Record, frozen=True):
    """A rollout was given to a worker."""

    lease: int


class StoredSample(SampleBody, frozen=True):
    """A sample with the rollout's active time when it was stored."""

    active_us: int = 0


class StoredObservation(ObservationBody, frozen=True):
    """An observation with the rollout's active time when it was stored."""

    active_us: int = 0


class StoredState(StateChange, frozen=True):
    """A change of state with the rollout's active time, where a worker told it."""

    active_us: int = 0


class Clock(Record, frozen=True):
    """Active time of a rollout in a long step: what a crash must not forget."""

    active_us: int


class CancelAsked(Record, frozen=True):
    """Somebody wants a rollout ended that a worker still runs."""

    by: str
    reason: str = ""


class GuidanceQueued(Record, frozen=True):
    """Guidance was queued."""

    id: str
    author: str
    text: str
    mode: GuidanceMode
    uid: int | None = None
    verified: bool = True


class GuidanceEdited(Record, frozen=True):
    """Queued guidance got another text."""

    id: str
    revision: int
    text: str
    by: str
    uid: int | None = None


class GuidanceWithdrawn(Record, frozen=True):
    """Queued guidance was taken back."""

    id: str
    by: str
    uid: int | None = None


class Delivery(Record, frozen=True):
    """Guidance was joined to the observation of the event's step; the texts stay in theirs."""

    ids: tuple[str, ...]
    """In the order in which they were joined."""


class Bookmarked(Record, frozen=True):
    """A step was marked for everybody, or its mark was removed."""

    author: str
    note: str = ""
    remove: bool = False
    uid: int | None = None
    verified: bool = True


TYPES: dict[str, type[Record]] = {
    "daemon": DaemonStarted,
    "task": TaskRecord,
    "spec": StoredSpec,
    "assigned": Assigned,
    "state": StoredState,
    "cancel": CancelAsked,
    "clock": Clock,
    "head": Head,
    "sample": StoredSample,
    "intent": Intent,
    "result": Result,
    "observation": StoredObservation,
    "delivery": Delivery,
    "fork": ForkBody,
    "guidance": GuidanceQueued,
    "edit": GuidanceEdited,
    "withdraw": GuidanceWithdrawn,
    "bookmark": Bookmarked,
}
"""Kind of an event → type of its body."""
