"""Checks whether a name that somebody typed may be a slip.

Names are free: a new name makes a new person. A name that is not known here, but close to a known
one, is questioned at a terminal and refused with a sentence elsewhere.
"""

import pwd
import sys

from houston_shared import command_output
from houston_shared.errors import UsageError
from houston_shared.store import presence_queries
from houston_shared.store.store_reader import Reader


def confirm_name(reader: Reader, name: str, effect: str, next: str) -> bool:
    """Whether the name is known here; asks where it may be a slip of a known name.

    effect: what was not done because of a slip. next: the command that takes the name as typed.
    Raises HoustonError (2) for a slip.
    """
    known_names = reader.run(presence_queries.list_known_names())
    if name in known_names or _is_login(name):
        return True
    meant_name = presence_queries.find_meant_name(name, known_names)
    if meant_name and not _ask(
        f"Nobody called {name} was here, but {meant_name} was. Is it {name}?"
    ):
        raise UsageError(f"Nobody called {name!r} was here; {meant_name!r} was.", effect, next)
    return False


def _is_login(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except (KeyError, ValueError):  # ValueError: a name with a null byte
        return False
    return True


def _ask(question: str) -> bool:
    """Yes at a terminal; no where there is none, and nobody to answer."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    command_output.print_question(f"{question} [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
