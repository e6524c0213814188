"""Changes that an evaluation's snapshot and the step's snapshot saw are one change to a reader."""

from typing import Literal

import pytest

from houston_daemon.environments.workstation.step_closing import merge_changes
from houston_shared.records import FileChange

Kind = Literal["added", "changed", "removed"]


def change(kind: Kind, diff: str = "", path: str = "a") -> FileChange:
    return FileChange(path=path, kind=kind, added=1, removed=2, diff=diff)


CASES: list[tuple[Kind, Kind, Kind | None]] = [
    ("added", "changed", "added"),
    ("added", "removed", None),
    ("changed", "changed", "changed"),
    ("changed", "removed", "removed"),
    ("removed", "added", "changed"),
]


@pytest.mark.parametrize(("first", "second", "both"), CASES)
def test_two_changes_of_a_file_become_one(first: Kind, second: Kind, both: Kind | None) -> None:
    found = merge_changes((change(first, "x\n"),), (change(second, "y\n"),))
    assert [one.kind for one in found] == ([both] if both else [])
    if found:
        assert (found[0].added, found[0].removed, found[0].diff) == (2, 4, "x\ny")


def test_other_files_stay_as_they_are() -> None:
    one, two = change("added", path="a"), change("removed", path="b")
    assert merge_changes((one,), (two,)) == (one, two)
