"""What the console and the daemon share: records, messages, store, configuration, safe text.

`houston_shared.open(home)` reads a home from Python (docs/notebook.md).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from houston_shared.home_reader import HomeReader


def open(home: "str | os.PathLike[str] | None" = None) -> "HomeReader":
    """The home in the folder `home`, for reading; None: as for any command, by HOUSTON_HOME.

    Raises HoustonError where there is no home, or this user may not read it.
    """
    from houston_shared.home_reader import (
        HomeReader,
    )  # what imports the package does not pay for it

    return HomeReader(home)
