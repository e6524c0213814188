"""The folders that must be there before there can be a lock and a log; the recorder does the rest.

Needed by the starting command as well as by the daemon, and therefore light to import.
"""

from houston_shared.home import Home
from houston_shared.lock import unusable


def make_folders(home: Home) -> None:
    """Make the home and its logs; raises HoustonError when the home cannot be written."""
    try:
        for folder in (home.path, home.logs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise unusable(home, problem) from None
