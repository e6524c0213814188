"""Bodies of events about training runs, policies, and what engines' rollouts sample with.

As in `event_bodies`, fields are only ever added, with a default. Weights are files of the home: an
event holds their hashes. Messages carry some of these records too, and need no more than these. Who
writes these events and when is the recorder's business.
"""

from typing import Any, Literal

from houston_shared.records import Record

PolicyKind = Literal["base", "lora", "full", "reward"]
"""`reward`: a process reward model, which scores decisions and samples nothing."""
RunKind = Literal["sft", "dapo", "echo", "prm"]
"""`dapo`: reinforcement learning by any recipe. `echo`: a critic, on what people said."""
RunState = Literal["queued", "running", "finished", "failed", "cancelled"]
ENDED_RUN_STATES: frozenset[RunState] = frozenset({"finished", "failed", "cancelled"})
"""States that a training run never leaves."""


class RequestedBody(Record, frozen=True, kw_only=True):
    """Base: who asked, as the kernel vouches for it."""

    by: str
    """`person:<name>`; `daemon` where nobody asked."""
    request: str = ""
    """Idempotency key."""
    uid: int | None = None
    verified: bool = True
    pid: int = 0
    role: str = ""


class PolicyRegistered(RequestedBody, frozen=True, kw_only=True):
    """A policy is there: its lineage, and the hashes of its files."""

    name: str
    """`policy@7`."""
    kind: PolicyKind
    base: str
    """Folder of the model that the adapter fits; of a base or full weights, the model itself."""
    base_hash: str
    """SHA-256 of that model's files (`model_hash`)."""
    base_origin: str = ""
    """That model on the hub, `org/name@COMMIT`; empty where it is from nowhere that is known."""
    hash: str
    """The same of its own files."""
    folder: str = ""
    """Its folder in the home's `policies/`; empty for a base, which lies where it lay."""
    parent: str = ""
    """The policy that training began from."""
    run: str = ""
    """The training run; empty where it was imported."""
    manifest: str = ""
    """SHA-256 of the manifest of the data that it was trained on."""
    recipe: dict[str, Any] = {}
    metrics: dict[str, Any] = {}
    engines: tuple[str, ...] = ()
    """Kinds of engines that can sample with it."""
    files: dict[str, str] = {}
    """SHA-256 (hex) by name of what its folder holds."""
    rank: int = 0
    """Of a LoRA adapter."""
    note: str = ""
    version: str = ""
    """Houston's, when it was registered."""
    origin: str = ""
    """Where on the hub it was pulled from, `org/name@COMMIT`; empty for any other."""


class TrainingQueued(RequestedBody, frozen=True, kw_only=True):
    """A training run was queued, or somebody runs one beside the daemon."""

    run: str
    kind: RunKind
    alone: bool = False
    """Whether somebody runs it beside the daemon, which then only keeps its state."""
    name: str = "policy"
    """Family of the policy that it is to become."""
    parent: str = ""
    """The policy that it begins from; empty for the base model."""
    base: str = ""
    """Folder of the base model."""
    rollouts: tuple[str, ...] = ()
    """What its data was taken from."""
    manifest: str = ""
    """SHA-256 of the manifest of its data."""
    recipe: dict[str, Any] = {}
    gpus: int = 0
    """GPUs of this machine that it leases; none: it runs on the CPU."""
    share_gpus: bool = False
    """Whether it may have GPUs that an engine uses."""


class TrainingStateChanged(RequestedBody, frozen=True, kw_only=True):
    """A training run began (once more), or ended."""

    run: str
    state: RunState
    reason: str = ""
    """Why it failed, or waits."""
    start: bool = False
    """Whether a process for it began."""


class TrainingCancelRequested(RequestedBody, frozen=True, kw_only=True):
    """Somebody wants a training run ended whose process still lives."""

    run: str
    reason: str = ""


class ActivationRequested(RequestedBody, frozen=True, kw_only=True):
    """Somebody wants new rollouts of an engine to sample with a policy."""

    engine: str
    policy: str = ""
    """Empty for the engine's own model."""
    rollback: bool = False
    """Whether it takes the newest activation back."""


class ActivationEnded(Record, frozen=True, kw_only=True):
    """What came of it: the engine answered with the policy, or why not."""

    asked: int
    """Sequence of the event that asked."""
    ok: bool
    reason: str = ""
    unloaded: tuple[str, ...] = ()
    """Policies that made room for it."""


TRAINING_BODY_TYPES: dict[str, type[Record]] = {
    "policy": PolicyRegistered,
    "training": TrainingQueued,
    "training-moved": TrainingStateChanged,
    "training-cancel": TrainingCancelRequested,
    "activation": ActivationRequested,
    "activated": ActivationEnded,
}
"""Kind of an event → type of its body."""
