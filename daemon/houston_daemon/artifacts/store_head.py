"""What a store holds of a home apart from events: its configuration, pins of models and adapters.

`heads/OWNER.json` names them by digest; it is replaced before each run of events, so that what the
events name is there. Also the paths of objects that are named by their content.
"""

import msgspec

from houston_daemon.artifacts.artifact_store import ArtifactStore, ObjectDamaged


class StoreHead(msgspec.Struct, frozen=True):
    """One head."""

    seq: int
    """The last event of the run that follows."""
    at: str
    """When that event was stored: what was committed before is in the store."""
    home: str
    version: str
    files: dict[str, str]
    """SHA-256 by path in the home."""


def find_head(store: ArtifactStore) -> StoreHead | None:
    """The newest head; None where there is none. Raises ObjectDamaged, StoreRefused."""
    names = sorted(store.list("heads"))
    if not names:
        return None
    try:
        return msgspec.json.decode(store.read(names[-1]), type=StoreHead)
    except msgspec.MsgspecError:
        raise ObjectDamaged(store.place(names[-1])) from None


def blob_object(sha256: str) -> str:
    """Where a large body of an event lies, packed as in the home."""
    return f"blobs/{sha256[:2]}/{sha256}"


def file_object(sha256: str) -> str:
    """Where a file of the home, or the copy of a large file of a workspace, lies."""
    return f"objects/{sha256[:2]}/{sha256}"
