"""What operators say to the recorder about rollouts: start, branch, erase, clean (see `wire`)."""

from houston_shared.records import RolloutSpec
from houston_shared.wire_status import Wire


class FromPerson(Wire, frozen=True, kw_only=True):
    """Base of what a person's command or console says. Who they are is the kernel's word."""

    claimed: str = ""
    """Name claimed where annotators share a login; kept, and marked unverified."""


class StartRollouts(FromPerson, frozen=True, kw_only=True):
    """Queue `specs` (their `rollout` ids are empty; the recorder gives them)."""

    request: str
    """Idempotency key."""
    specs: tuple[RolloutSpec, ...]


class Branch(FromPerson, frozen=True, kw_only=True):
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
