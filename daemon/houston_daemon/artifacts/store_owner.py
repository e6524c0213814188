"""Which home writes to a store's prefix: one at a time, by numbered objects, each made only once.

`owners/N.json` is made only if it does not exist (on S3 a conditional write), and the highest
number writes. Any other home copies nothing. A takeover makes the next number and says up to which
event the former owner's history still counts: what a home that was cut off writes after that is
never read. Numbers rise like the leases of workers.
"""

import socket
from collections.abc import Iterable
from pathlib import Path

import msgspec

from houston_daemon.artifacts.artifact_store import ArtifactStore, StoreRefused
from houston_shared import atomic_file
from houston_shared.errors import Busy, unwritable_as_error
from houston_shared.home import Home
from houston_shared.times_and_counts import iso_time, now_us

_MACHINE_ID = Path("/etc/machine-id")


class StoreOwner(msgspec.Struct, frozen=True):
    """A home that writes, or wrote, to the prefix."""

    number: int
    id: str
    """Of the home: made at its first claim, in no backup."""
    home: str
    host: str
    at: str
    after: int
    """The last event of the owners before that still counts."""


class StoreNote(msgspec.Struct, frozen=True):
    """`artifacts.json` of the home: its identity in the store, and how much of its journal is
    there."""

    id: str
    url: str = ""
    seq: int = 0
    at: str = ""


class StoreTaken(Busy):
    """Another home writes to the prefix."""

    def __init__(self, url: str, owner: StoreOwner) -> None:
        super().__init__(
            f"{url} is written by the home {owner.home} on {owner.host.partition('/')[0]}, since"
            f" {owner.at}.",
            "Nothing is copied from this home; rollouts go on.",
            "Name another prefix as `artifacts.url`; or, if that home is gone for good: houston"
            " backup --take-over",
        )


def note_file(home: Home) -> Path:
    """Where the note lies."""
    return home.path / "artifacts.json"


def read_note(home: Home) -> StoreNote | None:
    """The home's note; None where it never claimed a prefix, or the note cannot be read."""
    return atomic_file.read_json_file(note_file(home), StoreNote)


def read_copied(home: Home, url: str) -> StoreNote | None:
    """How far the home's journal is in the store at `url`; None where nothing was copied there."""
    note = read_note(home)
    return note if note and note.url == url and note.seq else None


def write_note(home: Home, note: StoreNote) -> None:
    """Replace the home's note. Raises HoustonError."""
    with unwritable_as_error(note_file(home)):
        atomic_file.write_atomically(note_file(home), msgspec.json.encode(note) + b"\n")


def read_owners(store: ArtifactStore) -> list[StoreOwner]:
    """All owners, in their order. Raises StoreRefused."""
    names = [name for name in store.list("owners") if name.endswith(".json")]
    try:
        owners = [msgspec.json.decode(store.read(name), type=StoreOwner) for name in names]
    except msgspec.MsgspecError as problem:
        raise StoreRefused(
            f"An object of {store.place('owners')} cannot be read: {problem}.",
            "Nothing was copied.",
        ) from None
    return sorted(owners, key=lambda owner: owner.number)


def limits_of_owners(owners: Iterable[StoreOwner]) -> dict[int, int]:
    """By number, the last event of an owner that counts."""
    limits: dict[int, int] = {}
    limit = 2**63 - 1
    for owner in sorted(owners, key=lambda owner: -owner.number):
        limits[owner.number] = limit
        limit = min(limit, owner.after)
    return limits


def claim(store: ArtifactStore, home: Home, host: str) -> StoreOwner:
    """Become the owner, or confirm that this home is. Raises StoreTaken, StoreRefused,
    HoustonError."""
    owners = read_owners(store)
    if owners:
        if not is_owner(owners[-1], home, host):
            raise StoreTaken(store.url, owners[-1])
        return owners[-1]
    return _create(store, home, host, number=1, after=0)


def take_over(store: ArtifactStore, home: Home, host: str, after: int) -> StoreOwner:
    """Become the next owner. after: the store's last event that this home's history shares.

    Raises StoreTaken where another was faster, StoreRefused, HoustonError.
    """
    owners = read_owners(store)
    return _create(store, home, host, owners[-1].number + 1 if owners else 1, after)


def check_owner(store: ArtifactStore, owner: StoreOwner) -> None:
    """Raise StoreTaken where another has taken over since; StoreRefused."""
    names = store.list("owners")
    if names and max(names) != _name(owner.number):
        raise StoreTaken(store.url, read_owners(store)[-1])


def is_owner(owner: StoreOwner, home: Home, host: str) -> bool:
    """Whether the owner is this home, at this path of this machine: a copy of a home is not."""
    note = read_note(home)
    return note is not None and (owner.id, owner.home, owner.host) == (
        note.id,
        str(home.path),
        host,
    )


def name_owner(home: str, host: str) -> str:
    """The name that tells a remote worker whose snapshots it copies. home: the home's path."""
    return f"{host}={home}"


def check_owner_name(store: ArtifactStore, name: str) -> None:
    """Raise StoreTaken where the home of that name does not write to the prefix, and StoreRefused
    where none does yet."""
    owners = read_owners(store)
    if not owners:
        raise StoreRefused(f"No home has written to {store.url} yet.", "Nothing was copied.")
    if name_owner(owners[-1].home, owners[-1].host) != name:
        raise StoreTaken(store.url, owners[-1])


def this_host() -> str:
    """This machine's name for an owner: its hostname with its machine id."""
    try:
        machine = _MACHINE_ID.read_text().strip()
    except OSError:
        machine = ""
    return f"{socket.gethostname()}/{machine}"


def _create(store: ArtifactStore, home: Home, host: str, number: int, after: int) -> StoreOwner:
    import secrets

    note = StoreNote(secrets.token_hex(16), store.url)
    owner = StoreOwner(number, note.id, str(home.path), host, iso_time(now_us()), after)
    write_note(home, note)  # first: a claim whose home was killed is still known as its own
    if not store.create(_name(number), msgspec.json.encode(owner)):
        raise StoreTaken(store.url, read_owners(store)[-1])
    return owner


def _name(number: int) -> str:
    return f"owners/{number:08d}.json"
