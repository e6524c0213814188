"""Which backup a person means: a folder that is one, a folder that holds some, or a name.

Says so where there is none; what a backup holds, `backup` knows.
"""

from pathlib import Path

from houston_daemon.recorder.disk import damage
from houston_shared.errors import HoustonError
from houston_shared.home import Home


def all_of(home: Home, named: Path) -> list[Path]:
    """Folders of the backups that `named` means, newest first, at least one.

    named: a backup, a folder of backups, or the name of one in the home's own `backups/`. Raises
    HoustonError where it is none of them, or this user may not look.
    """
    try:
        for place in dict.fromkeys((named.absolute(), home.backups / named)):
            look(place)
            if found := _in(place):
                return found
        there = named.exists()
    except OSError as problem:
        raise closed(named, problem) from None
    why = f"holds no backup (no {damage.MANIFEST})" if there else "does not exist"
    raise HoustonError(f"{named} {why}.", "Nothing was done.", _next(home))


def one(home: Home, named: Path) -> Path:
    """The one backup that `named` means; raises HoustonError, also where there are several."""
    found = all_of(home, named)
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise HoustonError(
            f"{named} holds {len(found)} backups: {names}.",
            "Nothing was done.",
            f"Name one of them, such as {found[0]}.",
        )
    return found[0]


def look(folder: Path) -> None:
    """Raise HoustonError where this user may not see what backups a folder holds."""
    try:
        if folder.is_dir():
            list(folder.iterdir())
    except OSError as problem:
        raise closed(folder, problem) from None


def closed(folder: Path, problem: OSError) -> HoustonError:
    """The sentence for a folder into which this user may not look."""
    return HoustonError(
        f"The backups in {folder} cannot be read by this user: {problem.strerror}.",
        "Nothing was done.",
        "Ask the user whose daemon it is; `houston daemon status` says how old the newest is.",
    )


def _in(place: Path) -> list[Path]:
    if (place / damage.MANIFEST).is_file():
        return [place]
    if not place.is_dir():
        return []
    found = (path.parent for path in place.glob(f"*/{damage.MANIFEST}"))
    return sorted((path for path in found if not path.name.startswith(".")), reverse=True)


def _next(home: Home) -> str:
    there = damage.backups(home)
    return f"There are: {', '.join(there)}." if there else "houston backup --list --to FOLDER"
