"""What judging and training programs say to the recorder (see `wire`).

They speak as the person who runs them: who that is, is the kernel's word, like for any command.
"""

from typing import Annotated, Any, Literal

import msgspec

from houston_shared.store.bodies_training import PolicyRegistered, RunKind, RunState
from houston_shared.wire_operators import FromPerson
from houston_shared.wire_people import JudgedSteps


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


class TrainingMoved(FromPerson, frozen=True, kw_only=True):
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

    The answer means that it was asked for; what came of it is the row of `activations` whose `seq`
    is the answer's.
    """

    request: str
    """Idempotency key."""
    engine: str
    policy: str = ""
    """Empty for the engine's own model."""
    rollback: bool = False
    """Take the newest activation back; `policy` is left empty."""
