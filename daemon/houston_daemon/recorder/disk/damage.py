"""The sentence about a damaged home, and the backup that it can name.

Which bytes are wrong is for `verify`; what to do about them for `upkeep.repair`.
"""

from collections.abc import Iterable

from houston_daemon.recorder.upkeep.verify_findings import Finding
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home

UNKNOWN = -1
"""In place of an event's number: SQLite cannot read far enough to tell."""
HEAD = -2
"""The same where every event is sound, and only the head file beside them is not."""
_WORDS = {0: "none (derived rows only)", UNKNOWN: "unknown", HEAD: "none (chain.head only)"}
MANIFEST = "manifest.json"
"""The file that is written last into a backup: a folder without it is none."""


def backups(home: Home) -> list[str]:
    """Names of the home's complete backups, oldest first."""
    return sorted(path.parent.name for path in home.backups.glob(f"[0-9]*/{MANIFEST}"))


def sentence(home: Home, rollout: str, seq: int) -> str:
    """`CORRUPT rollout=R first bad seq=N; backup T available`, as every command says it.

    rollout: `-` is said where it is empty (events of the daemon, or unknown). seq: 0 where no event
    is damaged, only what was derived from them; `UNKNOWN` and `HEAD`.
    """
    there = backups(home)
    where = f"first bad seq={_WORDS.get(seq, seq)}"
    kept = f"backup {there[-1]} available" if there else "no backup available"
    return f"CORRUPT rollout={rollout or '-'} {where}; {kept}"


def sentences(home: Home, findings: Iterable[Finding]) -> list[str]:
    """One sentence for each rollout that something is wrong with."""
    first: dict[str, int] = {}
    for finding in findings:
        seq = finding.seq or _WITHOUT.get(finding.what, UNKNOWN)
        first[finding.rollout] = min(first.get(finding.rollout, seq), seq, key=_before)
    return [sentence(home, rollout, seq) for rollout, seq in sorted(first.items())]


_WITHOUT = {"table": 0, "head": HEAD}
"""What a finding without an event says of the events."""


def _before(seq: int) -> tuple[bool, int]:
    """Order of what is said: the first event, then `UNKNOWN`, `HEAD`, derived rows."""
    return seq <= 0, {UNKNOWN: 0, HEAD: 1, 0: 2}.get(seq, seq)


def damaged(home: Home, cause: str, rollout: str = "", seq: int = UNKNOWN) -> HoustonError:
    """What is raised before something would be written that hides the damage."""
    return HoustonError(
        f"{sentence(home, rollout, seq)}. {cause}",
        f"The home {home.path} was not opened for writing; it can still be read.",
        "houston verify, then houston repair",
        ExitCode.DAMAGED,
    )
