"""Findings of an integrity check, and the sentence about a damaged home.

Every command prints `CORRUPT rollout=R first bad seq=N; backup T available` in the same words, with
the newest backup it can name. `home_verification` finds which bytes are wrong; `journal_repair`
decides what to do about them.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from houston_shared.errors import Damaged, HoustonError
from houston_shared.home import Home

FindingKind = Literal["structure", "chain", "body", "blob", "missing", "table", "head", "end"]
FINDINGS_LIMIT = 1_000
"""Findings that are kept; a store with more is beyond listing."""


class IntegrityFinding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is not as it was stored."""

    what: FindingKind
    text: str
    seq: int = 0
    """The event, 0 where it is none's."""
    rollout: str = ""
    table: str = ""


class IntegrityFindings:
    """All of them, in the order in which they were met."""

    def __init__(self) -> None:
        self.findings: list[IntegrityFinding] = []

    def add(
        self, kind: FindingKind, text: str, seq: int = 0, rollout: str = "", table: str = ""
    ) -> None:
        """Take note of one."""
        if len(self.findings) < FINDINGS_LIMIT:
            self.findings.append(
                IntegrityFinding(kind, _make_printable(text), seq, _make_printable(rollout), table)
            )

    def join(self, findings: Iterable[IntegrityFinding]) -> None:
        """Take over what was found elsewhere."""
        self.findings += list(findings)[: FINDINGS_LIMIT - len(self.findings)]


def _make_printable(text: object) -> str:
    """Text that quotes damaged bytes, as text that can be shown and encoded."""
    return str(text).encode("utf-8", "backslashreplace").decode()


UNKNOWN_SEQ = -1
"""In place of an event's number: SQLite cannot read far enough to tell."""
ONLY_HEAD_DAMAGED = -2
"""The same where every event is sound, and only the head file beside them is not."""
_SEQ_WORDS = {
    0: "none (derived rows only)",
    UNKNOWN_SEQ: "unknown",
    ONLY_HEAD_DAMAGED: "none (chain.head only)",
}
BACKUP_MANIFEST = "manifest.json"
"""The file that is written last into a backup: a folder without it is none."""


def list_backup_names(home: Home) -> list[str]:
    """Names of the home's complete backups, oldest first."""
    return sorted(path.parent.name for path in home.backups.glob(f"[0-9]*/{BACKUP_MANIFEST}"))


def describe_damage(home: Home, rollout: str, seq: int) -> str:
    """`CORRUPT rollout=R first bad seq=N; backup T available`, as every command says it.

    rollout: `-` is said where it is empty (events of the daemon, or unknown). seq: 0 where no event
    is damaged, only what was derived from them; or `UNKNOWN_SEQ`, or `ONLY_HEAD_DAMAGED`.
    """
    backups = list_backup_names(home)
    where = f"first bad seq={_SEQ_WORDS.get(seq, seq)}"
    available = f"backup {backups[-1]} available" if backups else "no backup available"
    return f"CORRUPT rollout={rollout or '-'} {where}; {available}"


def describe_findings(home: Home, findings: Iterable[IntegrityFinding]) -> list[str]:
    """One sentence for each rollout that something is wrong with."""
    first: dict[str, int] = {}
    for finding in findings:
        seq = finding.seq or _SEQ_WITHOUT_EVENT.get(finding.what, UNKNOWN_SEQ)
        first[finding.rollout] = min(first.get(finding.rollout, seq), seq, key=_damage_order)
    return [describe_damage(home, rollout, seq) for rollout, seq in sorted(first.items())]


_SEQ_WITHOUT_EVENT = {"table": 0, "head": ONLY_HEAD_DAMAGED}
"""What a finding without an event says of the events."""


def _damage_order(seq: int) -> tuple[bool, int]:
    """Order of what is said: the first event, then an unknown one, the head, derived rows."""
    return seq <= 0, {UNKNOWN_SEQ: 0, ONLY_HEAD_DAMAGED: 1, 0: 2}.get(seq, seq)


def damage_error(home: Home, cause: str, rollout: str = "", seq: int = UNKNOWN_SEQ) -> HoustonError:
    """The error to raise instead of writing something that would hide the damage."""
    return Damaged(
        f"{describe_damage(home, rollout, seq)}. {cause}",
        f"The home {home.path} was not opened for writing; it can still be read.",
        "houston verify, then houston repair",
    )
