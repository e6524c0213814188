"""Searching finds what is there, follows no link out, and says where it stopped."""

import os
import threading
from pathlib import Path

import pytest

from houston_daemon.environments.workstation.confined_paths import ConfinedFolder, PathRefused
from houston_daemon.environments.workstation.file_actions import FileSearch, Limit
from houston_daemon.environments.workstation.file_observations import FoundFiles
from houston_daemon.environments.workstation_actions import FindFile, SearchDir, SearchFile
from tests.unit.environments.conftest import Files


@pytest.fixture
def tree(files: Files) -> Files:
    root = files.root
    (root.parent / "secret.txt").write_text("needle outside\n")
    for name, text in {
        "a.txt": "hay\nneedle one\n",
        "deep/b.py": "x = 'needle'\n" * 2,
        "deep/.hidden": "needle hidden\n",
        ".git/config": "needle in git\n",
        "no.txt": "hay\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "binary").write_bytes(b"\0needle\n")
    (root / "latin").write_bytes(b"needle caf\xe9\r\n")
    (root / "out").symlink_to("..")
    (root / "out.txt").symlink_to("../secret.txt")
    os.mkfifo(root / "pipe")
    return files


async def test_search_dir(tree: Files) -> None:
    found = await tree("search_dir", search_term="needle")
    lines = {(match.path, match.line) for match in found.matches}
    assert lines == {
        ("a.txt", 2), ("deep/b.py", 1), ("deep/b.py", 2), ("deep/.hidden", 1), ("latin", 1),
    }  # fmt: skip
    assert (found.query, found.total_results, found.complete) == ("needle", 5, True)
    assert found.kind == "search"


async def test_search_below_a_folder_gives_paths_from_the_workspace(tree: Files) -> None:
    found = await tree("search_dir", search_term="x = ", dir_path="/workspace/deep")
    assert {match.path for match in found.matches} == {"deep/b.py"}


async def test_search_file(tree: Files) -> None:
    found = await tree("search_file", search_term="needle", file_path="deep/b.py")
    assert [match.line for match in found.matches] == [1, 2]
    none = await tree("search_file", search_term="gold", file_path="a.txt")
    assert (none.total_results, none.success) == (0, True)
    binary = await tree("search_file", search_term="needle", file_path="binary")
    assert "binary" in binary.note


async def test_find_file(tree: Files) -> None:
    assert (await tree("find_file", file_name="b.py")).paths == ("deep/b.py",)
    assert (await tree("find_file", file_name="*.txt")).paths == ("a.txt", "no.txt", "out.txt")
    assert (await tree("find_file", file_name="deep/*.py")).paths == ("deep/b.py",)
    assert (await tree("find_file", file_name="gold")).total_results == 0


async def test_list_files(tree: Files) -> None:
    listing = await tree("list_files")
    kinds = {entry.name: entry.type for entry in listing.entries}
    assert kinds == {
        "a.txt": "file", "binary": "file", "deep": "folder", "latin": "file", "no.txt": "file",
        "out": "link", "out.txt": "link", "pipe": "other",
    }  # fmt: skip
    assert listing.hidden == 1
    everything = await tree("list_files", show_hidden=True)
    assert ".git" in {entry.name for entry in everything.entries}


MISSING = [
    ("search_dir", {"search_term": "x", "dir_path": "nowhere"}),
    ("search_dir", {"search_term": "x", "dir_path": "out"}),
    ("search_dir", {"search_term": "x", "dir_path": "a.txt"}),
    ("search_file", {"search_term": "x", "file_path": "nothing"}),
    ("search_file", {"search_term": "x", "file_path": "out.txt"}),
    ("search_file", {"search_term": "x", "file_path": "pipe"}),
    ("find_file", {"file_name": "x", "dir_path": "../"}),
    ("list_files", {"path": "/etc"}),
    ("list_files", {"path": "a.txt"}),
]


@pytest.mark.parametrize(("name", "arguments"), MISSING)
async def test_places_that_cannot_be_searched(
    tree: Files, name: str, arguments: dict[str, str]
) -> None:
    with pytest.raises(PathRefused):
        await tree(name, **arguments)


async def test_results_are_counted_beyond_what_is_listed(files: Files) -> None:
    (files.root / "many").write_text("needle\n" * 1_000)
    found = await files("search_dir", search_term="needle")
    assert (len(found.matches), found.total_results) == (100, 1_000)


async def test_a_long_line_shows_where_the_term_is(files: Files) -> None:
    (files.root / "long").write_text("x" * 100_000 + "needle" + "y" * 100_000 + "\nneedle\n")
    found = await files("search_file", search_term="needle", file_path="long")
    assert [match.line for match in found.matches] == [1, 2]
    assert "needle" in found.matches[0].text
    assert len(found.matches[0].text) < 300


async def test_a_term_across_two_pieces_of_a_line_is_found_once(files: Files) -> None:
    (files.root / "long").write_text("x" * 65_533 + "needle" + "x" * 10 + "\n")
    found = await files("search_file", search_term="needle", file_path="long")
    assert found.total_results == 1


async def test_a_name_that_is_no_utf8_does_not_break_a_listing(files: Files) -> None:
    (files.root / os.fsdecode(b"caf\xe9")).touch()
    assert len((await files("list_files")).entries) == 1
    assert (await files("find_file", file_name="caf?")).total_results == 1


def test_a_search_that_ran_out_of_time_says_so(workspace: Path) -> None:
    for number in range(20):
        (workspace / f"{number}").write_text("needle\n")
    search = FileSearch(ConfinedFolder(workspace))
    over = Limit(seconds=-1)
    found = search.search_dir(SearchDir(search_term="needle"), over)
    assert not found.complete
    assert found.total_results < 20
    cancelled = Limit()
    cancelled.cancelled.set()
    assert not search.find_file(FindFile(file_name="*"), cancelled).complete


def test_a_folder_that_becomes_a_pipe_does_not_hold_a_search(workspace: Path) -> None:
    (workspace / "a").mkdir()
    (workspace / "b").mkdir()
    (workspace / "b" / "found").touch()

    class Swapping(Limit):
        """What an agent's process may do while the search asks whether it may go on."""

        def over(self) -> bool:
            if (workspace / "a").is_dir():
                (workspace / "a").rmdir()
                os.mkfifo(workspace / "a")
            return super().over()

    found: list[FoundFiles] = []
    search = FileSearch(ConfinedFolder(workspace))
    call = FindFile(file_name="*")
    thread = threading.Thread(
        target=lambda: found.append(search.find_file(call, Swapping())), daemon=True
    )
    thread.start()
    thread.join(20)
    assert [one.paths for one in found] == [("b/found",)]


async def test_a_line_without_end_is_searched_as_long_as_a_search_may_take(files: Files) -> None:
    with (files.root / "big").open("wb") as file:
        file.write(b"text " * 2_000)
        file.truncate(1 << 40)
    call = SearchFile(search_term="needle", file_path="big")
    found = FileSearch(ConfinedFolder(files.root)).search_file(call, Limit(0.1))
    assert (found.total_results, found.complete) == (0, False)
