"""Token ids of a prompt, rebuilt from the ledger: exactly what was sent to the engine.

prompt(s) = (prompt(parent) + sampled(parent))[:kept] + new ids. The chain is first walked over the
small table, so that only the bodies are read that hold some of the prompt: the cost follows the
prompt's length and not the length of the rollout.
"""

from typing import NamedTuple

import msgspec

from houston_shared.errors import HoustonError
from houston_shared.store import journal
from houston_shared.store.plan import Ask, Plan, Row

_WALK = """
WITH RECURSIVE walk (seq, parent_seq, kept, new_ids, sampled_ids) AS (
    SELECT seq, parent_seq, kept, new_ids, sampled_ids FROM samples WHERE seq = ?
    UNION ALL
    SELECT s.seq, s.parent_seq, s.kept, s.new_ids, s.sampled_ids
    FROM samples s JOIN walk w ON s.seq = w.parent_seq WHERE w.kept > 0
) SELECT * FROM walk
"""


class _Ids(msgspec.Struct, frozen=True):
    """The ids of a sample's body; decoding skips everything else."""

    new_prompt_ids: list[int] | None = None
    token_ids: list[int] | None = None


class _Piece(NamedTuple):
    """A stretch of the prompt: the first `length` ids of one field of one sample."""

    seq: int
    sampled: bool
    length: int


class Erased(Exception):
    """Some of the ids were erased from the journal."""


def prompt_ids(sample_seq: int) -> Plan[list[int] | None]:
    """Ids of the prompt of this sample; None when its engine works without token ids.

    Raises Erased when a body that holds some of them was erased, and HoustonError when the chain
    of parents is broken.
    """
    rows = yield Ask(_WALK, (sample_seq,))
    if not rows or rows[0][3] is None:
        return None
    pieces = _pieces({row[0]: row for row in rows}, sample_seq)
    bodies = yield from _bodies([piece.seq for piece in pieces])
    prompt: list[int] = []
    for piece in pieces:
        ids = bodies[piece.seq].token_ids if piece.sampled else bodies[piece.seq].new_prompt_ids
        if ids is None or len(ids) < piece.length:
            raise _broken(piece.seq)
        prompt += ids[: piece.length]
    return prompt


def _pieces(chain: dict[int, Row], sample_seq: int) -> list[_Piece]:
    """Where each stretch of the prompt lies, first to last."""
    _, parent, wanted, new_ids, _ = chain[sample_seq]
    pieces = [_Piece(sample_seq, False, new_ids)]
    while wanted:
        if parent not in chain:
            raise _broken(sample_seq)
        seq, parent, kept, new_ids, sampled_ids = chain[parent]
        if new_ids is None or wanted > kept + new_ids + (sampled_ids or 0):
            raise _broken(seq)
        if wanted > kept + new_ids:
            pieces.append(_Piece(seq, True, wanted - kept - new_ids))
        if wanted > kept:
            pieces.append(_Piece(seq, False, min(wanted - kept, new_ids)))
        wanted = min(wanted, kept)
    return pieces[::-1]


def _bodies(seqs: list[int]) -> Plan[dict[int, _Ids]]:
    found: dict[int, _Ids] = {}
    for seq, event in (yield from journal.by_seq(list(dict.fromkeys(seqs)))).items():
        if event.erased:
            raise Erased
        found[seq] = yield from journal.record(event, _Ids, _Ids())
    return found


def _broken(seq: int) -> HoustonError:
    return HoustonError(
        f"The ledger is broken at event {seq}: its prompt cannot be rebuilt.",
        "The token ids of this request cannot be shown.",
        "houston verify",
    )
