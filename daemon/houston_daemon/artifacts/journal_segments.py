"""The journal in a store: runs of events as objects, named by their content.

`journal/LEVEL-FIRST-LAST-OWNER-DIGEST` is a run of whole rows of `events`, compressed; the digest
is that of the uncompressed bytes, so that the same rows always have the same name. Runs are only
added; many short ones become a longer one of the next level. When rows are read back, each is
checked against the hash chain. The callers know where rows come from and go to.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import zstandard

from houston_daemon.artifacts.artifact_store import ArtifactStore, ObjectDamaged
from houston_daemon.recorder import hash_chain
from houston_daemon.recorder.hash_chain import EventRow
from houston_shared.errors import Damaged
from houston_shared.store.event_bodies import QUARANTINED_KIND

FOLDER = "journal"
MERGED_SEGMENTS = 64
"""So many runs of one level become one of the next."""
MAX_MERGED_BYTES = 8 * 1024 * 1024
"""Packed bytes of runs that are still merged."""
_ZSTD_LEVEL = 3


class Segment(NamedTuple):
    """One run of events, as its name says."""

    level: int
    first: int
    last: int
    owner: int
    digest: str

    @property
    def name(self) -> str:
        """Of its object."""
        return (
            f"{FOLDER}/{self.level}-{self.first:012d}-{self.last:012d}-{self.owner:08d}"
            f"-{self.digest}"
        )


def parse_segment_name(name: str) -> Segment | None:
    """The run that an object's name says; None for another name."""
    parts = name.rpartition("/")[2].split("-")
    if len(parts) != 5 or not all(part.isdigit() for part in parts[:4]):
        return None
    level, first, last, owner = map(int, parts[:4])
    return Segment(level, first, last, owner, parts[4])


def list_segments(store: ArtifactStore) -> dict[Segment, int]:
    """All runs in the store, and their packed bytes. Raises StoreRefused."""
    sizes = {parse_segment_name(name): size for name, size in store.list(FOLDER).items()}
    return {segment: size for segment, size in sizes.items() if segment is not None}


def choose_segments(segments: Iterable[Segment], limits: Mapping[int, int]) -> list[Segment]:
    """Runs that together hold every event, in order, as few and as long as possible.

    limits: by owner, the last event that counts. The list ends where no run has the next event.
    """
    ordered = sorted(
        (segment for segment in segments if segment.owner in limits),
        key=lambda segment: segment.first,
    )
    chosen: list[Segment] = []
    best: Segment | None = None
    at = after = 0
    while True:
        while at < len(ordered) and ordered[at].first <= after + 1:
            reach = last_event(ordered[at], limits), ordered[at].owner
            if best is None or reach > (last_event(best, limits), best.owner):
                best = ordered[at]
            at += 1
        if best is None or last_event(best, limits) <= after:
            return chosen
        chosen.append(best)
        after = last_event(best, limits)


def last_event(segment: Segment, limits: Mapping[int, int]) -> int:
    """The last event of a run that counts."""
    return min(segment.last, limits.get(segment.owner, 0))


def make_segment(rows: Sequence[EventRow], owner: int, level: int = 0) -> tuple[Segment, bytes]:
    """The run of these rows, and its object's content. rows: at least one, without gaps."""
    payload = msgspec.msgpack.encode(rows)
    packed = zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(payload)
    digest = hashlib.sha256(payload).hexdigest()
    return Segment(level, rows[0].seq, rows[-1].seq, owner, digest), packed


def read_segment(store: ArtifactStore, segment: Segment) -> list[EventRow]:
    """The rows of a run. Raises ObjectMissing, ObjectDamaged, StoreRefused."""
    packed = store.read(segment.name)
    try:
        payload = zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    except zstandard.ZstdError:
        raise ObjectDamaged(store.place(segment.name)) from None
    if hashlib.sha256(payload).hexdigest() != segment.digest:
        raise ObjectDamaged(store.place(segment.name))
    return [EventRow(*row) for row in msgspec.msgpack.decode(payload, type=list[tuple[Any, ...]])]


def check_chain(rows: Iterable[EventRow], place: str) -> Iterator[EventRow]:
    """The rows, each held against the one before. Raises HoustonError at the first that does not
    follow: two homes have written there, or an object was put there by hand."""
    seq, chain = 0, hash_chain.GENESIS
    for row in rows:
        expected = hash_chain.chain_value(chain, row.header, row.body_hash)
        # What a repair set aside has its place in the chain, not its header; `verify` knows it.
        follows = row.chain == expected or row.kind == QUARANTINED_KIND
        if row.seq != seq + 1 or not follows:
            raise Damaged(
                f"Event {row.seq} in {place} does not follow event {seq}: the chain is broken.",
                "Nothing was restored.",
                f"Restore the sound part: the same command with --until {seq}" if seq else "",
            )
        yield row
        seq, chain = row.seq, row.chain


def find_mergeable(sizes: Mapping[Segment, int], owner: int) -> list[Segment]:
    """The oldest runs of one level to merge into one of the next; empty where there are too few.

    Only runs of this owner: those of others are left alone.
    """
    own = [segment for segment in sizes if segment.owner == owner]
    for level in sorted({segment.level for segment in own}):
        run: list[Segment] = []
        packed = 0
        for segment in sorted(segment for segment in own if segment.level == level):
            fits = packed + sizes[segment] <= MAX_MERGED_BYTES
            if run and (segment.first != run[-1].last + 1 or not fits):
                run, packed = [], 0
            run.append(segment)
            packed += sizes[segment]
            if len(run) == MERGED_SEGMENTS:
                return run
    return []
