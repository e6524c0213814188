"""The eleven file actions as the agent calls them, beside commands that change the same files."""

import asyncio
import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from houston_shared.errors import HoustonError
from tests.integration.environments.conftest import MakeStation, Station

GOOD: list[tuple[str, dict[str, Any], str, str]] = [
    ("open_file", {"path": "/workspace/notes.txt"}, "file", "2 second"),
    ("file_goto_line", {"line_number": 3}, "file", "3 third"),
    ("file_scroll_up", {}, "file", "1 first"),
    ("file_scroll_down", {}, "file", "3 third"),
    ("get_file_info", {}, "info", "Open: notes.txt, 19 bytes"),
    ("create_file", {"filename": "a/b.txt", "content": "hay\nneedle\n"}, "file", "Created a/b.txt"),
    ("edit_file", {"path": "a/b.txt", "start": 1, "end": 1, "content": "straw"}, "file", "1 straw"),
    ("search_dir", {"search_term": "needle"}, "search", "a/b.txt:2: needle"),
    ("search_file", {"search_term": "needle", "file_path": "a/b.txt"}, "search", "1 line with"),
    ("find_file", {"file_name": "*.txt"}, "found", "a/b.txt\nnotes.txt"),
    ("list_files", {}, "listing", "a/\nnotes.txt  19"),
]


async def test_every_file_action_works(station: Station) -> None:
    for name, arguments, kind, text in GOOD:
        result = await station(name, **arguments)
        assert (result.kind, result.success) == (kind, True), (name, result.text)
        assert text in result.text, (name, result.text)
    searched = await station("search_dir", search_term="needle")
    assert (searched.fields["query"], searched.fields["total_results"]) == ("needle", 1)


async def test_a_name_makes_no_lines_of_its_own(station: Station) -> None:
    """Else a downloaded folder could look like what Houston says of other files."""
    name = "a\nnotes.txt  0"
    for action, arguments in (
        ("create_file", {"filename": name, "content": "needle"}),
        ("list_files", {}),
        ("find_file", {"file_name": "a*"}),
        ("search_dir", {"search_term": "needle"}),
        ("search_file", {"search_term": "needle", "file_path": name}),
        ("get_file_info", {}),
    ):
        result = await station(action, **arguments)
        assert result.success and "a\u23cenotes.txt  0" in result.text, (action, result.text)
        assert name not in result.text, action


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("open_file", {"path": "missing"}, "There is no 'missing'"),
    ("open_file", {"path": "/etc/passwd"}, "outside the workspace"),
    ("open_file", {"path": "escape/houston.db"}, "outside the workspace"),
    ("file_goto_line", {"line_number": 1}, "No file is open"),
    ("file_scroll_up", {}, "No file is open"),
    ("file_scroll_down", {}, "No file is open"),
    ("create_file", {"filename": "escape/x", "content": ""}, "outside the workspace"),
    ("edit_file", {"path": "notes.txt", "start": 9, "end": 9, "content": ""}, "3 lines"),
    ("edit_file", {"path": "notes.txt", "start": 3, "end": 1, "content": ""}, "inserts"),
    ("search_dir", {"search_term": "x", "dir_path": "escape"}, "outside the workspace"),
    ("search_file", {"search_term": "x", "file_path": "missing"}, "There is no"),
    ("find_file", {"file_name": "x", "dir_path": "missing"}, "There is no"),
    ("list_files", {"path": "../"}, "leads out"),
]


async def test_failures_are_observations(station: Station) -> None:
    await station("run_command", command=f"ln -s {station.folder}/home escape")
    for name, arguments, says in BAD:
        result = await station(name, **arguments)
        assert (result.kind, result.success) == ("error", False), (name, arguments)
        assert says in result.text
        assert "secret" not in result.text, (name, arguments)


async def test_without_an_open_file_the_info_says_so(station: Station) -> None:
    result = await station("get_file_info")
    assert (result.success, result.text) == (True, "No file is open.")


async def test_an_edit_after_a_command_changed_the_file_is_blind(station: Station) -> None:
    await station("open_file", path="notes.txt")
    await station("run_command", command="echo fourth >> notes.txt")
    edited = await station("edit_file", path="notes.txt", start=4, end=4, content="4")
    assert edited.fields["blind"]
    assert "4 4" in edited.text


async def test_a_bug_in_a_tool_is_an_observation(station: Station) -> None:
    """The state file's folder turned unreadable stands for what nobody foresaw."""
    (station.workspace / "notes.txt").unlink()
    station.workspace.rmdir()
    result = await station("list_files")
    assert (result.kind, result.success) == ("error", False)
    assert "workspace" in result.text


SPECIAL = {
    "pipe": "'x' is a pipe, no regular file.",
    "socket": "'x' is a socket, no regular file.",
}


@pytest.mark.parametrize("kind", SPECIAL)
async def test_special_files_are_called_what_they_are(kind: str, station: Station) -> None:
    place = station.workspace / "x"
    if kind == "pipe":
        os.mkfifo(place)
    else:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(place))
    for name in ("open_file", "search_file"):
        argument = {"open_file": "path", "search_file": "file_path"}[name]
        more = {"search_term": "y"} if name == "search_file" else {}
        result = await station(name, **{argument: "x"}, **more)
        assert result.text == f"Error: {SPECIAL[kind]}"
    created = await station("create_file", filename="x", content="y")
    assert created.text == f"Error: 'x' is a {kind} and is not replaced."


async def test_a_link_to_a_name_that_is_no_text_leads_there_and_back(station: Station) -> None:
    """The state that is saved after each action, and the journal, hold text only."""
    odd = r"$(printf 'd\xff')"
    made = await station(
        "run_command",
        command=f'mkdir "{odd}" && ln -s "{odd}" to && echo hay > to/f && ln -s f "to/{odd}"',
    )
    assert made.success, made.text
    assert "1 hay" in (await station("open_file", path="to/f")).text
    edited = await station("edit_file", path="to/f", start=1, end=1, content="straw")
    assert (edited.success, edited.fields["blind"], edited.fields["path"]) == (True, False, "to/f")
    await station.again()
    assert "Open: to/f, 6 bytes" in (await station("get_file_info")).text
    assert (await station("create_file", filename="to/new", content="x")).success
    found = await station("search_dir", search_term="straw", dir_path="to")
    assert "to/f:1: straw" in found.text
    closed = await station.environment.close_step(5)
    assert len(closed.files) == 4


GONE: list[tuple[str, dict[str, Any]]] = [
    ("run_command", {"command": "ls", "session_id": "new"}),
    ("create_session", {"session_id": "other"}),
    ("create_file", {"filename": "x", "content": "y"}),
    ("open_file", {"path": "notes.txt"}),
    ("list_files", {}),
    ("search_dir", {"search_term": "x"}),
    ("eval", {}),
]


async def test_a_workspace_removed_from_outside_is_called_gone(make_station: MakeStation) -> None:
    station = await make_station(evaluator="print(1)")
    await station("run_command", command="echo a")
    shutil.rmtree(station.workspace)
    for name, arguments in GONE:
        result = await station(name, **arguments)
        assert not result.success
        assert result.text == "Error: The workspace is gone: its folder was removed from outside."
    recovered = await station.recover("create_file", filename="x", content="y")
    assert "The workspace is gone" in recovered.text
    with pytest.raises(HoustonError) as failed:
        await station.environment.close_step(5)
    assert failed.value.cause == "The workspace is gone: its folder was removed from outside."
    on = await station("run_command", command="echo on")
    assert "on" in on.text and str(station.folder) not in on.text


async def test_what_fails_on_the_host_names_none_of_its_places(station: Station) -> None:
    await station("run_command", command="echo a")
    shutil.rmtree(station.workspace.parent / "terminals" / "main")
    result = await station("run_command", command="echo on")
    assert not result.success
    assert str(station.folder) not in result.text and "Error: run_command failed: No" in result.text
    shutil.rmtree(station.workspace.parent / "shadow" / "objects")
    await station("create_file", filename="x", content="y")
    with pytest.raises(HoustonError) as failed:
        await station.environment.close_step(5)
    assert failed.value.cause.startswith("The shadow repository cannot be used: ")
    assert str(station.folder) not in failed.value.cause
    await station.environment.close(ended=True)
    await asyncio.sleep(0.1)
    shells = [path for path in Path("/proc").glob("[0-9]*/cmdline") if _names(path, station.folder)]
    assert not shells


def _names(file: Path, place: Path) -> bool:
    try:
        return str(place).encode() in file.read_bytes()
    except OSError:
        return False
