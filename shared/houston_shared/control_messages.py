"""Messages of people, and of programs that they run, to the recorder; and the daemon's status.

They start, import, branch, erase and clean rollouts; give verdicts, order and claims; and manage
training runs and policies. Each may be sent again after a lost answer: `request` (or the id, or the
order itself) identifies it as the same message. `seen` is the newest event that the sender had
read, so that a later message of somebody else about the same thing is never overwritten unseen. The
kernel says who the sender is. `wire` has the unions, the messages of workers, and guidance.
"""

import os
from typing import Annotated, Any, Literal

import msgspec

from houston_shared.records import (
    ContextHead,
    ForkBody,
    ObservationBody,
    RolloutSpec,
    SampleBody,
    ToolResult,
)
from houston_shared.store.training_event_bodies import PolicyRegistered, RunKind, RunState


class WireMessage(msgspec.Struct, frozen=True, tag=True, omit_defaults=True, kw_only=True):
    """Base of every message; the tag is the class name."""


class ReplicaStatus(msgspec.Struct, frozen=True):
    """How one server of an engine stands that has several."""

    name: str
    state: str
    """`ready`, `starting`, `draining`, or `down: <reason>`."""
    address: str
    """Host and port; empty before it has one."""
    rollouts: int = 0
    """Rollouts that keep to it."""
    requests: int = 0
    """Samples of rollouts that it works at."""
    policies: tuple[str, ...] = ()
    """Adapters that it has loaded, as it said last."""
    restarts: int = 0
    """How often it was brought up again since the daemon's start."""


class NodeStatus(msgspec.Struct, frozen=True):
    """One node of the cluster that workers run on, and what runs there."""

    name: str
    """The first characters of Ray's id of it."""
    host: str
    """The machine's own name."""
    alive: bool
    cpus: float
    """What it offers to all, not what is free."""
    memory_mb: int
    gpus: float
    labels: dict[str, str] = {}
    """Those that people gave it."""
    workers: int = 0
    """Of this home; one may have many rollouts."""
    rollouts: tuple[str, ...] = ()
    """Rollouts of this home that run there."""


class Status(WireMessage, frozen=True, kw_only=True):
    """How the daemon stands: the JSON of `daemon status --json`."""

    pid: int
    state: Literal["starting", "running", "draining"]
    uptime: float
    """Seconds."""
    epoch: int
    version: str
    home: str
    rollouts: dict[str, int]
    """Rollouts by state."""
    workers: int = 0
    queue: int = 0
    """Messages waiting for the writer."""
    commits: int = 0
    """Transactions of this daemon that stored something."""
    commit_p99_ms: float = 0.0
    wal_mb: float = 0.0
    disk_free_mb: float = 0.0
    consoles: int = 0
    limits: str = ""
    """What limits processes and memory of rollouts here: `cgroup2`, `cgroup1` or `watchdog`."""
    engines: dict[str, str] = {}
    """Engine name → `ready`, `starting`, `down: <reason>`, or `failing: <reason>`: it is
    there, and workers wait for its answers."""
    last_error: str = ""
    search_lag: int = 0
    """Events that search.db has not seen yet."""
    longest_silence: float = 0.0
    """Longest time between two messages of one worker, seconds; each beats every second."""
    restarts: dict[str, int] = {}
    """`workers`, `engines`, `fork_servers` → how many were started again since the daemon began."""
    troubles: dict[str, str] = {}
    """What keeps ending → how often, when it is tried again, what it said last."""
    acked: int = 0
    """Messages of workers answered since the daemon's start; each answer means on disk."""
    ack_p99_ms: float = 0.0
    """99th percentile of recent times from receipt to answer."""
    backup_age: float | None = None
    """Seconds since the newest backup of the home's own; None where there is none."""
    backup_event: int = 0
    """The newest event that it holds."""
    gpus: dict[str, str] = {}
    """Host → how many of its GPUs are leased and by whom; `waiting` → who waits for what."""
    training: dict[str, str] = {}
    """Training run → how far it has come, in words."""
    policies: dict[str, str] = {}
    """Engine → the policy that its new rollouts sample with; engines' own models are left out."""
    replicas: dict[str, tuple[ReplicaStatus, ...]] = {}
    """Engine that has several servers → how each stands."""
    nodes: tuple[NodeStatus, ...] = ()
    """Nodes of the cluster; empty without `[ray]`."""
    unplaced: dict[str, str] = {}
    """Rollout → why it waits for a node."""


class FromPerson(WireMessage, frozen=True, kw_only=True):
    """Base of what a person's command or console says. Who they are is the kernel's word."""

    claimed: str = ""
    """Name claimed where annotators share a login; kept, and marked unverified."""


class StartRollouts(FromPerson, frozen=True, kw_only=True):
    """Queue `specs` (their `rollout` ids are empty; the recorder gives them)."""

    request: str
    """Idempotency key."""
    specs: tuple[RolloutSpec, ...]


MAX_IMPORTED_STEPS = 2_000
"""Steps of an imported rollout at most: they are stored in one transaction, while everybody waits
(0.6 s of a processor)."""


class ImportedGuidance(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a person said to the agent, as a file has it."""

    author: str
    text: str
    id: str = ""
    """The file's own, by which a fork names what it keeps; the recorder gives another."""


class ImportedStep(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One step of an imported rollout, whole."""

    sample: SampleBody
    results: tuple[ToolResult, ...] = ()
    observation: ObservationBody
    guidance: tuple[ImportedGuidance, ...] = ()
    """Joined to its observation, in order."""
    active_us: int = 0
    """Microseconds from the beginning of the rollout to the end of the step."""
    mask: str = ""
    """Why nothing of it may be trained; empty where it may."""
    fork: ForkBody | None = None
    """The summary with which a new context began before it; its guidance by the file's ids."""


class ImportRollout(FromPerson, frozen=True, kw_only=True):
    """Store a rollout that was sampled elsewhere, whole and ended."""

    request: str
    """Idempotency key: of the same file the same."""
    spec: RolloutSpec
    """Its `rollout` id is empty (the recorder gives it), its `elsewhere` is not."""
    head: ContextHead
    steps: tuple[ImportedStep, ...]
    state: Literal["finished", "failed", "cancelled"] = "finished"
    reason: str = ""
    """Why it ended so."""


class BranchRollout(FromPerson, frozen=True, kw_only=True):
    """Queue a sibling of a rollout that goes on from after one of its steps."""

    request: str
    """Idempotency key."""
    rollout: str
    step: int
    """A closed step."""
    id: str = ""
    """Id of the guidance, made by the sender; without text there is none."""
    text: str = ""
    """Guidance for its first observation."""


class EraseBodies(FromPerson, frozen=True, kw_only=True):
    """Erase bodies of events for good; their hashes stay, and the chain holds."""

    rollout: str
    """Whose events they are; empty for those of the daemon."""
    seqs: tuple[int, ...] = ()
    """None: only let what was erased leave the WAL as well."""
    text: str = ""
    """Take only this string (and token ids) out of them; empty for all their texts."""
    ids: bool = False
    """Take only token ids out of them."""
    reason: str = ""
    archive: str = ""
    """The file that holds the rollout as it was."""
    more: bool = False
    """Whether further events of the same archive follow: until the last the rollout is not one."""


class CleanRollouts(FromPerson, frozen=True, kw_only=True):
    """Free what ended rollouts keep on their host; said in the journal when it is done."""

    rollouts: tuple[str, ...]
    snapshots: bool = False
    """Their snapshots, too."""


MAX_JUDGED_STEPS = 20_000
"""Steps that one message judges at most: their rows are written while everybody waits (0.1 s)."""
MAX_JUDGED_RANGES = 500
"""Ranges that one message judges at most."""
REASON_LIMIT = 2_000
"""Characters of a reason."""
Judgement = Literal["keep", "mask", "undecided"]
"""`undecided` takes a person's verdict back: the rule's or the judge's counts again."""


class JudgedSteps(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One verdict on the closed steps `first` to `last`, both included."""

    first: int
    last: int
    verdict: Judgement
    reason: str = ""


class GiveVerdicts(FromPerson, frozen=True, kw_only=True):
    """A person's verdict on ranges of steps; to undo one, say what stood before."""

    request: str
    """Idempotency key, made by the sender."""
    rollout: str
    steps: tuple[JudgedSteps, ...]
    seen: int = 0
    """Refused when somebody else judged one of these steps after this event; 0 to overrule."""


class ReorderGuidance(FromPerson, frozen=True, kw_only=True):
    """Another order of a rollout's queued guidance; delivered first wins."""

    rollout: str
    order: tuple[str, ...]
    """Ids of all that is queued, in the wanted order."""
    seen: tuple[str, ...] = ()
    """The order that the sender saw; refused when it is another by now. Empty: any."""


class ClaimRollout(FromPerson, frozen=True, kw_only=True):
    """Look after a rollout, or (with `release`) no longer. Shown to all, enforced for nobody.

    A release with a note hands the rollout over: to `to`, or to anybody.
    """

    request: str
    """Idempotency key, made by the sender."""
    rollout: str
    note: str = ""
    """For the next person; the newest one stays until another is left."""
    to: str = ""
    """Name of the person whom a release with a note is meant for; empty for anybody."""
    release: bool = False
    """Refused to who does not hold it."""
    seen: int = 0
    """Refused when somebody else claimed it after this event; 0 to take it over, and to release
    whatever stands."""


class ReadNote(FromPerson, frozen=True, kw_only=True):
    """A note was read by its recipient; its author sees that. It changes nothing for one's own
    note, for a note to another person, or for an older one."""

    rollout: str
    note: int
    """The event that left the note."""


class StoreVerdicts(FromPerson, frozen=True, kw_only=True):
    """What rules or a judge say of ranges of steps; each stands beside what people said.

    A new run says only what differs from what its source said before. `undecided` takes a verdict
    of this source back; one of another source is never touched.
    """

    request: str
    """Idempotency key, made by the sender."""
    rollout: str
    source: Literal["rule", "judge"]
    by: str
    """Which: `rules`, or `judge:` and the engine."""
    steps: tuple[JudgedSteps, ...]
    """Reasons of rules name them with their versions: `error@1: …; blind_edit@1: …`."""


class StoreDraft(FromPerson, frozen=True, kw_only=True):
    """What a critic would have a person say to a running rollout; nothing is said yet."""

    id: str
    """Made by the sender, so that sending again does not double it."""
    rollout: str
    step: int
    """The last closed step that the critic read."""
    critic: str
    """Its policy, else its engine."""
    text: str
    reason: str = ""
    template: str = ""
    """SHA-256 of the words that asked it, hex."""


class StoreReviewCost(FromPerson, frozen=True, kw_only=True):
    """What a judge or a critic took to read a rollout; they say it when they have read it."""

    request: str
    """Made by the sender, so that sending again does not double it."""
    rollout: str
    reviewer: str
    """`judge:ENGINE` or `critic:ENGINE`, with the policy where there is one."""
    requests: int
    """Samples that were asked for."""
    prompt_tokens: int
    sampled_tokens: int
    reckoned: bool = False
    """Whether tokens are reckoned from bytes: the endpoint did not count them."""
    cost: float | None = None
    """By the engine's price; None where none is declared."""


class RejectDraft(FromPerson, frozen=True, kw_only=True):
    """Turn a critic's draft down."""

    id: str


MAX_SCORED_STEPS = 1_000
"""Steps that one message scores at most."""
StepScoreValue = Annotated[float, msgspec.Meta(ge=0, le=1)]


class StepScore(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a process reward model gives the decision of one attempt at a step, from 0 to 1."""

    rollout: str
    step: int
    attempt: int
    score: StepScoreValue
    weak: bool = False
    """Whether that is below `[review] weak_decision`."""


class StoreProcessRewards(FromPerson, frozen=True, kw_only=True):
    """What a process reward model says of closed steps of any rollouts.

    A score that the same policy has given the attempt before stays as it is. Steps that are not
    there, were replaced or erased are left out; the answer names them as `skipped`.
    """

    policy: str
    """A registered one, e.g. `prm@2`."""
    scores: tuple[StepScore, ...]


class StartTraining(FromPerson, frozen=True, kw_only=True):
    """Queue a training run whose folder lies ready in the home, or say that one runs alone."""

    request: str
    """Idempotency key."""
    run: str
    """Its name, and that of its folder in `training/`."""
    kind: RunKind = "sft"
    alone: bool = False
    """Somebody runs it beside the daemon, which keeps its state and starts no process."""
    name: str = "policy"
    """Family of the policy that it is to become."""
    parent: str = ""
    """The policy that it begins from; empty for the base model."""
    base: str = ""
    """Folder of the base model."""
    base_hash: str = ""
    """What that model is, by content; empty where nobody has looked."""
    rollouts: tuple[str, ...] = ()
    manifest: str = ""
    """SHA-256 of the manifest of its data."""
    recipe: dict[str, Any] = {}
    gpus: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 0
    """GPUs of this machine that it leases; without any it runs on the CPU."""
    share_gpus: bool = False
    """Whether it may have GPUs that an engine uses."""


class ReportTrainingState(FromPerson, frozen=True, kw_only=True):
    """How a run stands that somebody runs alone; of the daemon's own the supervisor says it."""

    run: str
    state: RunState
    reason: str = ""


class CancelTraining(FromPerson, frozen=True, kw_only=True):
    """End a training run; its checkpoints stay."""

    run: str
    reason: str = ""


class RegisterPolicy(FromPerson, frozen=True, kw_only=True):
    """A policy lies in the home's `policies/` under its name: take note of it.

    With the first of a family the base model becomes number 1.
    """

    request: str
    """Idempotency key."""
    policy: PolicyRegistered


class ActivatePolicy(FromPerson, frozen=True, kw_only=True):
    """Have new rollouts of an engine sample with a policy, once the engine has answered with it.

    The answer only confirms the request; the result is in the row of `activations` that has the
    answer's `seq`.
    """

    request: str
    """Idempotency key."""
    engine: str
    policy: str = ""
    """Empty for the engine's own model."""
    rollback: bool = False
    """Take the newest activation back; `policy` is left empty."""


def new_guidance_id() -> str:
    """`g-` and 12 hexadecimal digits."""
    return f"g-{os.urandom(6).hex()}"
