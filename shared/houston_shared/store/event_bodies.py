"""Bodies of journal events that are not a worker's own words: what each `kind` holds.

Where a body extends a record (`StoredSample` of `SampleBody`), the record's type reads it too: a
reader that does not need the extra fields need not know of them. Fields are only ever added, with a
default. `BODY_TYPES` is the whole list of kinds; who writes them and when is the recorder's
business.
"""

from typing import Literal

from houston_shared.records import (
    CallIntent,
    ContextHead,
    ForkBody,
    GuidanceMode,
    JobReport,
    ObservationBody,
    Record,
    RolloutSpec,
    SampleBody,
    StateChange,
    TaskRecord,
    ToolResult,
)
from houston_shared.store import training_event_bodies


class DaemonDied(Record, frozen=True):
    """The daemon before did not come to its own end (a kill, a crash, a power cut)."""

    pid: int
    since: str
    """When it took the home, ISO 8601 in UTC."""
    last_stored: int = 0
    """When its newest event was stored, UTC microseconds; 0 where that could not be read."""


class DaemonStarted(Record, frozen=True):
    """A daemon opened the home for writing."""

    epoch: int
    pid: int
    version: str
    configuration: str = ""
    """Fingerprint of the configuration it runs with."""
    uid: int | None = None
    """The user who runs it."""
    died: DaemonDied | None = None
    """The daemon before it, where that one died."""


class DaemonStopRequested(Record, frozen=True):
    """Somebody asked the daemon to stop."""

    by: str
    uid: int | None = None
    verified: bool = True
    pid: int = 0
    role: str = ""
    keep_engine: bool = False


class HostsChanged(Record, frozen=True):
    """Machines whose workers may speak to the daemon were let in or removed, or given new keys."""

    by: str
    """Login name of the home's owner, who alone can do so."""
    uid: int
    hosts: dict[str, str]
    """All of them afterwards: name → public key."""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    """Those whose key is another one."""


class RefusedAttempt(Record, frozen=True):
    """Somebody was refused for who they are."""

    by: str
    """Login name or number; `unknown` without the kernel's word."""
    what: str
    """What they wanted, in words."""
    uid: int
    verified: bool = True
    pid: int = 0
    role: str = ""
    """The role they have; empty for none."""
    needs: str = ""
    """The role that it needs; empty where no role would do."""
    about: str = ""
    """The rollout or guidance that was meant."""
    times: int = 1
    """Attempts that this event stands for, since the last one of the same user at the same."""


class StoredSpec(RolloutSpec, frozen=True):
    """A rollout was queued."""

    by: str = ""
    """`person:<name>`."""
    uid: int | None = None
    verified: bool = True
    """Whether the name is the kernel's word; here and below."""
    pid: int = 0
    """The process that asked; here and below."""
    role: str = ""
    """The role it had; here and below."""
    request: str = ""
    """Idempotency key of the start."""
    sandbox: str = "bubblewrap"
    """Kind of the task's sandbox."""


class RolloutAssigned(Record, frozen=True):
    """A rollout was given to a worker."""

    lease: int


class StoredSample(SampleBody, frozen=True):
    """A sample with the rollout's active time when it was stored."""

    active_us: int = 0


class StoredObservation(ObservationBody, frozen=True):
    """An observation with the rollout's active time when it was stored."""

    active_us: int = 0


class StoredState(StateChange, frozen=True):
    """A change of state: with the active time where a worker told it, or with who asked for it."""

    active_us: int = 0
    uid: int | None = None
    verified: bool = True
    pid: int = 0
    role: str = ""


class ActiveTimeStored(Record, frozen=True):
    """Active time of a rollout in a long step: what a crash must not forget."""

    active_us: int


class ClockJumped(Record, frozen=True):
    """The wall clock of the daemon's machine was set; times before and after do not compare."""

    seconds: float
    """By how much it went forward."""


class CancelRequested(Record, frozen=True):
    """Somebody wants a rollout ended that a worker still runs."""

    by: str
    reason: str = ""
    uid: int | None = None
    verified: bool = True
    pid: int = 0
    role: str = ""


class GuidanceQueued(Record, frozen=True):
    """Guidance was queued."""

    id: str
    author: str
    text: str
    mode: GuidanceMode
    words: int = 0
    """Of the text (`word_count`), so that what was erased still counts; 0 where nobody counted."""
    uid: int | None = None
    verified: bool = True
    pid: int = 0
    role: str = ""


DraftDecision = Literal["accepted", "edited", "rejected"]


class DraftWritten(Record, frozen=True):
    """A critic drafted guidance for a running rollout, having read it up to the event's step."""

    id: str
    critic: str
    """Its policy, else its engine."""
    text: str
    reason: str = ""
    """Why, in the critic's words."""
    template: str = ""
    """SHA-256 of the words that asked it, hex."""
    by: str = ""
    """Who asked for it."""
    uid: int | None = None
    verified: bool = True
    pid: int = 0
    role: str = ""


AUTOPILOT = "autopilot"
"""Who decides a draft where nobody is asked: `DraftDecided.by`."""


class DraftDecided(Record, frozen=True):
    """A critic's draft was accepted, accepted in other words, or rejected."""

    id: str
    decision: DraftDecision
    guidance: str = ""
    """What was said; empty where it was turned down."""
    by: str = ""
    uid: int | None = None
    verified: bool = True
    pid: int = 0
    role: str = ""


class ReviewCostStored(Record, frozen=True):
    """What a judge or a critic took to read a rollout."""

    reviewer: str
    request: str
    requests: int
    prompt_tokens: int
    sampled_tokens: int
    reckoned: bool = False
    cost: float | None = None
    by: str = ""
    """Who had it read."""
    uid: int | None = None
    verified: bool = True
    pid: int = 0
    role: str = ""


class GuidanceEdited(Record, frozen=True):
    """Queued guidance got another text."""

    id: str
    revision: int
    text: str
    by: str
    words: int = 0
    """As in `GuidanceQueued`."""
    uid: int | None = None
    verified: bool = True
    pid: int = 0
    role: str = ""


class GuidanceWithdrawn(Record, frozen=True):
    """Queued guidance was taken back."""

    id: str
    by: str
    uid: int | None = None
    verified: bool = True
    pid: int = 0
    role: str = ""


class GuidanceDelivered(Record, frozen=True):
    """Guidance was joined to the observation of the event's step; the texts stay in theirs."""

    ids: tuple[str, ...]
    """In the order in which they were joined."""


class StepBookmarked(Record, frozen=True):
    """A step was marked for everybody, or its mark was removed."""

    author: str
    note: str = ""
    remove: bool = False
    uid: int | None = None
    verified: bool = True
    pid: int = 0
    role: str = ""


class GuidanceReordered(Record, frozen=True):
    """Queued guidance got another order."""

    ids: tuple[str, ...]
    """All that was queued, as it is to be delivered."""
    by: str
    uid: int | None = None
    verified: bool = True
    pid: int = 0
    role: str = ""


class VerdictGiven(Record, frozen=True):
    """Closed steps, from the event's own to `last`, were judged, or a verdict was taken back."""

    last: int
    verdict: Literal["keep", "mask", "undecided"]
    by: str
    reason: str = ""
    source: Literal["rule", "judge", "human"] = "human"
    request: str = ""
    asked: str = ""
    """Who ran the rules or the judge, which are `by`; empty for a person's own verdict."""
    uid: int | None = None
    verified: bool = True
    pid: int = 0
    role: str = ""


class ProcessRewardGiven(Record, frozen=True):
    """A process reward model scored the decision of one attempt at a step (of the event's key)."""

    policy: str
    """The model, e.g. `prm@2`."""
    score: float
    """0 to 1."""
    weak: bool = False
    """Whether that is below `[review] weak_decision`, as it was configured then."""
    by: str = ""
    """Who ran it."""
    uid: int | None = None
    verified: bool = True
    pid: int = 0
    role: str = ""


class RolloutClaimed(Record, frozen=True):
    """Somebody looks after the rollout, or no longer does; or only left a note."""

    by: str
    note: str = ""
    """For the next person; empty leaves the note that was there."""
    to: str = ""
    """Who that is; empty for anybody."""
    release: bool = False
    request: str = ""
    uid: int | None = None
    verified: bool = True
    pid: int = 0
    role: str = ""


class NoteRead(Record, frozen=True):
    """Who a note is meant for has read it."""

    by: str
    note: int
    """The event that left it."""
    uid: int | None = None
    verified: bool = True
    pid: int = 0
    role: str = ""


class BodiesErased(Record, frozen=True):
    """Bodies of earlier events were erased; their hashes stay, and the chain holds.

    What is left of each (its remainder: what derived rows need, and marks in place of texts) lies
    in its row; this event vouches for it.
    """

    by: str
    """`person:<name>`."""
    seqs: tuple[int, ...]
    remainders: tuple[bytes, ...]
    """SHA-256 of each remainder."""
    reason: str = ""
    archive: str = ""
    """The file that holds the rollout as it was; empty where nothing was kept."""
    more: bool = False
    """Whether further events of the same archive follow: only the last makes the rollout one."""
    blobs: tuple[str, ...] = ()
    """Files that held bodies; those that no other event names go after the commit."""
    uid: int | None = None
    verified: bool = True
    pid: int = 0
    role: str = ""


class RolloutCleaned(Record, frozen=True):
    """What an ended rollout kept on its host was freed."""

    by: str
    """Who asked."""
    bytes: int
    snapshots: bool = False
    """Whether its snapshots went, too."""
    left: str = ""
    """Why something is left; empty when all went that was meant to."""
    uid: int | None = None
    verified: bool = True
    pid: int = 0
    role: str = ""


class JournalRepaired(Record, frozen=True):
    """A repair set events aside, or took some whose place in the chain could not be checked."""

    by: str
    seqs: tuple[int, ...]
    rows: tuple[bytes, ...]
    """`hash_chain.row_hash` of each row as the repair left it."""
    copies: str
    """Folder of the home with the files as they were, and every event that was set aside."""
    uid: int | None = None
    verified: bool = True
    pid: int = 0
    role: str = ""


BODY_TYPES: dict[str, type[Record]] = {
    "daemon": DaemonStarted,
    "task": TaskRecord,
    "spec": StoredSpec,
    "assigned": RolloutAssigned,
    "state": StoredState,
    "cancel": CancelRequested,
    "clock": ActiveTimeStored,
    "jumped": ClockJumped,
    "head": ContextHead,
    "sample": StoredSample,
    "intent": CallIntent,
    "result": ToolResult,
    "observation": StoredObservation,
    "delivery": GuidanceDelivered,
    "fork": ForkBody,
    "guidance": GuidanceQueued,
    "edit": GuidanceEdited,
    "withdraw": GuidanceWithdrawn,
    "bookmark": StepBookmarked,
    "reorder": GuidanceReordered,
    "verdict": VerdictGiven,
    "process-reward": ProcessRewardGiven,
    "draft": DraftWritten,
    "draft-decision": DraftDecided,
    "review-cost": ReviewCostStored,
    "claim": RolloutClaimed,
    "job": JobReport,
    "note-read": NoteRead,
    "stop": DaemonStopRequested,
    "refused": RefusedAttempt,
    "hosts": HostsChanged,
    "erased": BodiesErased,
    "repaired": JournalRepaired,
    "cleaned": RolloutCleaned,
    **training_event_bodies.TRAINING_BODY_TYPES,
}
"""Kind of an event → type of its body."""
VOUCHING_KINDS = frozenset({"erased", "repaired"})
"""Kinds that say what earlier events have become, and vouch for that."""
QUARANTINED_KIND = "aside"
"""Kind of a row that keeps the place of an event which `houston repair` set aside: no body."""
