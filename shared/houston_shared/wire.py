"""Messages between processes: msgspec structs in msgpack, one tagged union a direction.

Frames on `ingest` and `control` are `[request id (8 bytes), body]` from a DEALER; the answer
carries the same request id. A push (not an answer) has request id zero. Nothing is pickled, nothing
is evaluated, a frame is at most `FRAME_LIMIT` bytes. `Hello` states the protocol.
"""

from typing import Literal

import msgspec

from houston_shared.control_messages import ActivatePolicy as ActivatePolicy
from houston_shared.control_messages import BranchRollout as BranchRollout
from houston_shared.control_messages import CancelTraining as CancelTraining
from houston_shared.control_messages import ClaimRollout as ClaimRollout
from houston_shared.control_messages import CleanRollouts as CleanRollouts
from houston_shared.control_messages import EraseBodies as EraseBodies
from houston_shared.control_messages import FromPerson as FromPerson
from houston_shared.control_messages import GiveVerdicts as GiveVerdicts
from houston_shared.control_messages import ImportRollout as ImportRollout
from houston_shared.control_messages import JudgedSteps as JudgedSteps
from houston_shared.control_messages import ReadNote as ReadNote
from houston_shared.control_messages import RegisterPolicy as RegisterPolicy
from houston_shared.control_messages import RejectDraft as RejectDraft
from houston_shared.control_messages import ReorderGuidance as ReorderGuidance
from houston_shared.control_messages import ReportTrainingState as ReportTrainingState
from houston_shared.control_messages import StartRollouts as StartRollouts
from houston_shared.control_messages import StartTraining as StartTraining
from houston_shared.control_messages import Status as Status
from houston_shared.control_messages import StepScore as StepScore
from houston_shared.control_messages import StoreDraft as StoreDraft
from houston_shared.control_messages import StoreProcessRewards as StoreProcessRewards
from houston_shared.control_messages import StoreReviewCost as StoreReviewCost
from houston_shared.control_messages import StoreVerdicts as StoreVerdicts
from houston_shared.control_messages import WireMessage as WireMessage
from houston_shared.records import (
    CallIntent,
    ContextHead,
    DeliveredGuidance,
    ForkBody,
    Guidance,
    GuidanceMode,
    JobReport,
    ObservationBody,
    RolloutSpec,
    RolloutState,
    SampleBody,
    StepRecord,
    ToolResult,
)

PROTOCOL = 4
FRAME_LIMIT = 64 * 1024 * 1024
"""Largest frame in bytes; longer bodies do not exist (terminal output stays on its host)."""
PUSH_REQUEST_ID = b"\0" * 8
"""Request id of a message that answers nothing."""


class QueuedGuidance(msgspec.Struct, frozen=True, omit_defaults=True):
    """Guidance queued for a rollout: how much, and how urgent the most urgent is."""

    count: int = 0
    urgency: GuidanceMode | None = None


class EngineReplica(msgspec.Struct, frozen=True, omit_defaults=True):
    """One server of an engine that has several, as its rollouts are told of it."""

    name: str
    """A child's as in the status; of a server at a URL, its host and port."""
    url: str
    state: Literal["ready", "draining", "down"] = "ready"
    """`draining`: it was taken out of the configuration; what it samples now is waited for."""
    reason: str = ""
    """Why it is down."""


class ReplicaUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which replica of an engine a rollout keeps to."""

    replica: str
    requests: int = 0
    """Requests of the rollout that it answers now."""


class WorkerControl(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What is wanted of a worker, as state: repeated in every ack and heartbeat."""

    waiting: QueuedGuidance = QueuedGuidance()
    pause: bool = False
    cancel: bool = False
    drain: bool = False
    """The daemon is stopping: leave at the next safe point; running calls are found again."""
    replicas: dict[str, tuple[EngineReplica, ...]] = {}
    """Of each of the rollout's engines that has several servers, those servers."""


# --- ingest: worker → recorder -----------------------------------------------------------------


class FromWorker(WireMessage, frozen=True, kw_only=True):
    """Base of what a worker says. Older leases are refused."""

    rollout: str
    lease: int
    active_us: int = 0
    """Active time of the rollout so far, microseconds (monotonic; without pauses and downtime)."""


class Hello(FromWorker, frozen=True, kw_only=True, omit_defaults=False):
    """A worker begins; answered with `Welcome`."""

    pid: int
    protocol: int = PROTOCOL
    """Always sent: left out, the reader would take its own for the sender's."""


class ReadSteps(FromWorker, frozen=True, kw_only=True):
    """Ask for steps of the current context from number `step` on; answered with `Steps`."""

    step: int


class StoreHead(FromWorker, frozen=True, kw_only=True):
    """The head as rendered, once in a rollout's life."""

    head: ContextHead


class StoreSample(FromWorker, frozen=True, kw_only=True):
    """One request to a model and what it sampled."""

    step: int
    attempt: int
    part: str = "sample"
    """`sample` for the one that decides the step, `summary.<n>` for the n-th try at a summary
    before it, `lookahead.<n>` for the n-th correction of its failed call (attempt n + 1),
    `planner.<n>` for an answer of a planner that was no action and was asked for again,
    `verifier.<n>` for what a verifier said after its calls."""
    sample: SampleBody


class StoreIntent(FromWorker, frozen=True, kw_only=True):
    """A call is about to run; the ack's `act` says whether it may."""

    step: int
    attempt: int
    index: int
    intent: CallIntent


class StoreResult(FromWorker, frozen=True, kw_only=True):
    """What a call returned."""

    step: int
    attempt: int
    index: int
    result: ToolResult


class StoreObservation(FromWorker, frozen=True, kw_only=True):
    """Closes a step; the ack carries the guidance that was joined to it."""

    step: int
    attempt: int
    observation: ObservationBody


class StoreFork(FromWorker, frozen=True, kw_only=True):
    """A new context begins before step `step`."""

    step: int
    fork: ForkBody


class StoreJob(FromWorker, frozen=True, kw_only=True):
    """How a job stands: that a call left it running, that it ended, and how. At any time."""

    job: JobReport


class StoreState(FromWorker, frozen=True, kw_only=True):
    """The rollout ends, or waits for its engine, its hosts or a person's word, and goes on."""

    state: RolloutState
    reason: str = ""
    by: Literal["engine", "host-away", "host"] = "engine"
    """Who owns a pause: `engine` and `host-away` end by themselves, `host` by a person."""


class Heartbeat(FromWorker, frozen=True, kw_only=True):
    """Sent every second, whatever tools do."""

    activity: str = ""
    """What it does now, a few words: `sampling`, `run_command`, `sleep`, …"""
    replicas: dict[str, ReplicaUse] = {}
    """Engine with several servers → the one that the rollout keeps to."""
    trouble: str = ""
    """What goes wrong beside its steps, a sentence; shown by `daemon status`."""


class Heartbeats(WireMessage, frozen=True, kw_only=True):
    """Those of all rollouts of a shared worker; answered with `HeartbeatReplies`."""

    beats: tuple[Heartbeat, ...]


IngestRequest = (
    Hello
    | ReadSteps
    | StoreHead
    | StoreSample
    | StoreIntent
    | StoreResult
    | StoreObservation
    | StoreFork
    | StoreJob
    | StoreState
    | Heartbeat
)
"""What is said of one rollout."""


# --- ingest: recorder → worker -----------------------------------------------------------------


class SideSample(msgspec.Struct, frozen=True, kw_only=True):
    """A stored sample that is no step: a try at a summary, a malformed answer of a planner that was
    asked again, or what a verifier said."""

    seq: int
    part: str
    """`summary.<n>`, `planner.<n>` or `verifier.<n>`."""
    sample: SampleBody


class Welcome(WireMessage, frozen=True, kw_only=True):
    """Everything a worker starts from."""

    spec: RolloutSpec
    head: ContextHead | None
    """None before the first prompt."""
    fork: ForkBody | None
    """The fork that the current context starts with; None before the first."""
    fork_guidance: tuple[DeliveredGuidance, ...] = ()
    """Guidance of everything the fork compressed, in order, to be kept verbatim."""
    forks: int = 0
    """Forks so far."""
    summaries: tuple[SideSample, ...] = ()
    """Tries at a summary stored under step `next_step`, in order; a fork may still be owed."""
    flow_samples: tuple[SideSample, ...] = ()
    """Of a flow, what its planner and verifier said under step `next_step` besides the step."""
    attempts: tuple[StepRecord, ...] = ()
    """Attempts at the open step besides the one that counts, in order: what was replaced, and
    corrections that were looked at ahead."""
    next_step: int
    """The step that is open or comes next; `Steps` holds what the journal has of it."""
    first_step: int
    """First step of the current context."""
    active_us: int
    evaluations: int
    """Submissions used so far."""
    best_score: float | None
    last_score: float | None
    evaluation_seconds: float = 0.0
    """Time that evaluations took, those without a score too."""
    since_gain: int = 0
    """Submissions with a score since the best one."""
    gained_us: int = 0
    """Active time at the best score; 0 without one."""
    cost: float = 0.0
    """What its samples cost so far."""
    epoch: int
    control: WorkerControl
    home: str = ""
    """The daemon's home: no other may drive the rollout's folder on a host."""
    home_elsewhere: str = ""
    """The same as other machines know it."""


class Steps(WireMessage, frozen=True, kw_only=True):
    """A page of steps, oldest first; `more` says to ask again from the last number + 1."""

    steps: tuple[StepRecord, ...]
    more: bool


class Ack(WireMessage, frozen=True, kw_only=True):
    """It is on disk."""

    seq: int
    control: WorkerControl
    act: bool = True
    """For an intent: whether to run the call. False when a wake or interrupt came first."""
    guidance: tuple[DeliveredGuidance, ...] = ()
    """For an observation: what was joined to it, in order."""
    duplicate: bool = False
    """Whether the same bytes were stored before; the answer is what was stored then."""


class ControlPush(WireMessage, frozen=True, kw_only=True):
    """The same control state as in acks, sooner."""

    control: WorkerControl
    rollout: str = ""
    """Whose it is: a shared worker runs several over one socket."""


RefusalCode = Literal[
    "STALE_LEASE",
    "SEQ_CONFLICT",
    "ENDED",
    "PROTOCOL",
    "UNKNOWN",
    "INVALID",
    "DISK_FULL",
    "GUIDED",
    "REMOVED",
]


class Refused(WireMessage, frozen=True, kw_only=True):
    """Not stored. `STALE_LEASE` and `ENDED`: the worker ends. `SEQ_CONFLICT`: a bug, it fails.
    `REMOVED`: its host may not speak any more, it leaves.
    `GUIDED`: a person has spoken, and the step is not purified."""

    code: RefusalCode
    reason: str


class HeartbeatReplies(WireMessage, frozen=True, kw_only=True):
    """What each of the heartbeats would have been answered with alone, in their order."""

    replies: tuple[Ack | Refused, ...]


IngestReply = Welcome | Steps | Ack | ControlPush | Refused | HeartbeatReplies


# --- control: people → recorder ----------------------------------------------------------------


class Guide(FromPerson, frozen=True, kw_only=True):
    """Queue guidance."""

    id: str
    """Made by the sender, so that sending again after a lost answer does not double it."""
    rollout: str
    text: str
    mode: GuidanceMode = "next"
    draft: str = ""
    """Id of the critic's draft that this is said of, as it stands or in other words."""


class EditGuidance(FromPerson, frozen=True, kw_only=True):
    """Change queued guidance; refused when `revision` is not the newest or it was delivered."""

    id: str
    revision: int
    text: str


class WithdrawGuidance(FromPerson, frozen=True, kw_only=True):
    """Take queued guidance back; refused when it was delivered."""

    id: str


class Steer(FromPerson, frozen=True, kw_only=True):
    """Pause, resume or cancel a rollout."""

    rollout: str
    action: Literal["pause", "resume", "cancel"]
    reason: str = ""
    undoes: int = 0
    """The event of one's own that this takes back; refused unless it is what stands. 0 for none."""


class BookmarkStep(FromPerson, frozen=True, kw_only=True):
    """Mark a step for everybody, with a note; an empty rollout step clears nothing."""

    rollout: str
    step: int
    note: str = ""
    remove: bool = False


class ReportPresence(FromPerson, frozen=True, kw_only=True):
    """A console looks at a rollout (or at none); said again at least every 15 seconds."""

    rollout: str = ""
    step: int = 0
    active: bool = False
    """Whether a key was pressed in the last minute: only then time counts as attention, and what
    is there as seen."""


class AskStatus(FromPerson, frozen=True, kw_only=True):
    """Answered with `Status`."""


class StopDaemon(FromPerson, frozen=True, kw_only=True):
    """Drain and end; `keep_engine` for a restart."""

    keep_engine: bool = False


ControlRequest = (
    StartRollouts
    | ImportRollout
    | BranchRollout
    | Guide
    | EditGuidance
    | WithdrawGuidance
    | Steer
    | GiveVerdicts
    | StoreVerdicts
    | StoreProcessRewards
    | StoreDraft
    | RejectDraft
    | StoreReviewCost
    | ReorderGuidance
    | ClaimRollout
    | ReadNote
    | BookmarkStep
    | ReportPresence
    | AskStatus
    | EraseBodies
    | CleanRollouts
    | StartTraining
    | ReportTrainingState
    | CancelTraining
    | RegisterPolicy
    | ActivatePolicy
    | StopDaemon
)


# --- control: recorder → people ----------------------------------------------------------------


class RequestStored(WireMessage, frozen=True, kw_only=True):
    """It is on disk."""

    seq: int = 0
    rollouts: tuple[str, ...] = ()
    guidance: Guidance | None = None
    skipped: tuple[int, ...] = ()
    """Places in `StoreProcessRewards.scores` of steps that have no score now: not there, replaced,
    or erased."""


class Denied(WireMessage, frozen=True, kw_only=True):
    """Not done: cause, effect and next command as for any error; `code` is the exit code."""

    cause: str
    effect: str = ""
    next: str = ""
    code: int = 1


ControlReply = RequestStored | Denied | Status


# --- live: recorder → everybody ----------------------------------------------------------------


class Notice(msgspec.Struct, frozen=True, array_like=True):
    """Something was committed; who misses one catches up from the database by `seq`."""

    epoch: int
    seq: int
    rollout: str
    kind: str


NOTICE_START = b"\x94"
"""How every notice begins: an array of four. A process of the daemon subscribes to this instead of
to everything, so that it is not counted as a console."""

ingest_request_decoder = msgspec.msgpack.Decoder(IngestRequest | Heartbeats)
ingest_reply_decoder = msgspec.msgpack.Decoder(IngestReply)
control_request_decoder = msgspec.msgpack.Decoder(ControlRequest)
control_reply_decoder = msgspec.msgpack.Decoder(ControlReply)
notice_decoder = msgspec.msgpack.Decoder(Notice)
encode_message = msgspec.msgpack.Encoder().encode
