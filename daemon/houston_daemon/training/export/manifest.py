"""The manifest of an export: what is in it, where it comes from, and how it was made.

It has no time and no path of its own, so that the same inputs give the same bytes. It is written
last: a folder without one is no export.
"""

from typing import Any

import msgspec

from houston_daemon.training.export.judged import Judged
from houston_shared.errors import HoustonError
from houston_shared.secret_values import redact_all

NAME = "manifest.json"
VERSION = 1


class File(msgspec.Struct, frozen=True):
    """One data file."""

    name: str
    rows: int
    """Lines in it, copies too."""
    bytes: int
    sha256: str
    tokens: int | None
    """Of ids; None for rows of messages."""
    trained: int
    """Tokens with a weight; of messages, answers."""
    longest: int
    """Tokens of the longest row; of messages, messages."""


class Source(msgspec.Struct, frozen=True):
    """One rollout that rows come from."""

    rollout: str
    task: str
    group: str
    parent: str
    parent_step: int | None
    state: str
    newest_seq: int
    """The newest event of it that was there when its rows were made."""
    past_seq: int
    """Of a branch, the newest event of the rollouts whose steps it shares; else 0."""
    provenance: str
    """`none` for a rollout without a sandbox."""
    engine: str
    policies: list[str]
    """That sampled what is in its rows."""
    rows: int
    """Without copies."""
    held_out: bool
    moved: bool
    """Whether it went on while it was exported."""


class LeftOut(msgspec.Struct, frozen=True):
    """A row that is not in the files."""

    row: str
    why: str


class Drawn(msgspec.Struct, frozen=True):
    """How some of the tokens were sampled, and what their log-probabilities are of."""

    policy: str
    """Version; empty for the base model."""
    policy_hash: str
    """Its content; empty for the base model, and where it was not kept."""
    sampling: dict[str, Any]
    """Temperature, top_p and what else bends a distribution; a grammar by its hash."""
    logprob_kind: str
    """Only `policy` is the probability with which they were drawn; `none` where there is none."""
    tokens: int
    """Sampled, trained or not; in several rows they count in each."""


class Counts(msgspec.Struct, frozen=True):
    """What weighs and what does not, without a recipe's copies; held out rows, too."""

    unit: str
    """`tokens`, or `answers` for rows of messages."""
    all: int
    """Tokens, or messages, of all rows."""
    sampled: int
    """Of answers; one that stands in several rows counts in each."""
    trained: int
    unjudged: int
    """Of those that are trained: of steps of which nobody said anything."""
    untrained: dict[str, int]
    """Sampled and not trained, by why; with `trained` it makes `sampled`."""


class Manifest(msgspec.Struct, frozen=True):
    """`manifest.json`."""

    version: int
    format: str
    rows: int
    content_hash: str
    """SHA-256 of the data file; that of held_out stands with it in `files`."""
    inputs: str
    """SHA-256 of everything that was asked and of how far each source was: who asks the same of the
    same gets the same."""
    files: list[File]
    counts: Counts
    sources: list[Source]
    provenance: str
    """`none` where a source ran without a sandbox: nobody can promise who wrote its files."""
    verdicts: Judged
    options: dict[str, Any]
    recipe: dict[str, Any]
    split: dict[str, Any]
    """`by`, tasks to `train` on and `held_out`."""
    tokenizers: dict[str, str]
    """File → SHA-256, of the ids' tokenizers; empty for rows of messages."""
    dialects: list[str]
    base: list[str]
    """Models that the sources' engines name."""
    left_out: list[LeftOut]
    remarks: dict[str, int]
    """What is true of so many lines."""
    traps: list[str]
    """What the consumer does without a word."""
    versions: dict[str, str]
    drawn: list[Drawn] = []
    """Of rows of ids; empty for rows of messages."""
    ids_from: dict[str, int] = {}
    """Rows of ids without copies: `ledger` as they were sampled, `rendered` by a dialect; empty for
    rows of messages, and in manifests from before it was counted."""


def encode(manifest: Manifest) -> bytes:
    """As it stands in the folder: indented, keys in their order."""
    clean = redact_all(msgspec.to_builtins(manifest))  # an engine's address may hold a key
    return msgspec.json.format(msgspec.json.encode(clean), indent=1) + b"\n"


def decode(raw: bytes, where: object) -> Manifest:
    """A manifest read back; raises HoustonError for what is none."""
    try:
        return msgspec.json.decode(raw, type=Manifest)
    except msgspec.MsgspecError as problem:
        raise HoustonError(f"{where} is no manifest of an export ({problem}).") from None
