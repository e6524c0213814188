"""The sentence about a damaged home, and the backup that it can name.

Which bytes are wrong is for `verify`; what to do about them for `upkeep.repair`.
"""

from collections.abc import Iterable

from houston_daemon.recorder.verify_findings import Finding
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home

UNKNOWN = -1
"""In place of an event's number: SQLite cannot read far enough to tell."""
MANIFEST = "manifest.json"
"""The file that is written last into a backup: a folder without it is none."""


def backups(home: Home) -> list[str]:
    """Names of the home's complete backups, oldest first."""
    return sorted(path.parent.name for path in home.backups.glob(f"[0-9]*/{MANIFEST}"))


def sentence(home: Home, rollout: str, seq: int) -> str:
    """`CORRUPT rollout=R first bad seq=N; backup T available`, as every command says it.

    rollout: `-` is said where it is empty (events of the daemon, or unknown). seq: 0 where no event
    is damaged, only what was derived from them, and `UNKNOWN`.
    """
    there = backups(home)
    number = {0: "none (derived rows only)", UNKNOWN: "unknown"}.get(seq, str(seq))
    where = f"first bad seq={number}"
    kept = f"backup {there[-1]} available" if there else "no backup available"
    return f"CORRUPT rollout={rollout or '-'} {where}; {kept}"


def sentences(home: Home, findings: Iterable[Finding]) -> list[str]:
    """One sentence for each rollout that something is wrong with."""
    first: dict[str, int] = {}
    for finding in findings:
        before = first.setdefault(finding.rollout, finding.seq)
        if finding.seq and (not before or finding.seq < before):
            first[finding.rollout] = finding.seq
    return [sentence(home, rollout, seq) for rollout, seq in sorted(first.items())]


def damaged(home: Home, cause: str, rollout: str = "", seq: int = 0) -> HoustonError:
    """What is raised before something would be written that hides the damage."""
    return HoustonError(
        f"{sentence(home, rollout, seq)}. {cause}",
        f"The home {home.path} was not opened for writing; it can still be read.",
        "houston verify, then houston repair",
        ExitCode.DAMAGED,
    )
