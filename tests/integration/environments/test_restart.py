"""What a worker finds again, what it says of a call that was cut off, and how it closes a step."""

import asyncio
import time
from pathlib import Path

import pytest

from houston_shared.errors import HoustonError
from tests.integration.environments.conftest import MakeStation, Station


async def test_the_file_window_survives(station: Station) -> None:
    lines = "".join(f"line {number}\n" for number in range(1, 301))
    await station("create_file", filename="long.txt", content=lines)
    await station("open_file", path="long.txt", context_lines=50)
    await station.again()
    window = await station("file_scroll_down")
    assert window.fields["first_line"] == 49
    await station.again()
    assert "long.txt" in (await station("get_file_info")).text
    edited = await station("edit_file", path="long.txt", start=1, end=1, content="x")
    assert not edited.fields["blind"]


async def test_a_state_that_cannot_be_read_is_named(station: Station) -> None:
    await station("run_command", command="echo begun")
    await station.environment.close_step(5)
    (file,) = station.workspace.parent.glob("*.json")
    file.write_text("{half")
    with pytest.raises(HoustonError, match=f"{file.name} cannot be read"):
        await station.again()


async def test_a_running_command_is_found_again(station: Station) -> None:
    command = "echo begun; sleep 1; echo done"
    await station("run_command", command=command, wait_for_completion=False)
    await station.again()
    result = await station.recover("run_command", command=command)
    assert (result.kind, result.success) == ("interrupted", False)
    assert "unknown" in result.text
    assert "begun" in result.text
    assert "still running" in result.text
    await station("sleep", sleep_time=2)
    later = await station.recover("run_command", command=command)
    assert "exit code 0" in later.text
    assert (await station("get_session_output")).text.count("begun\n") == 1


async def test_a_command_that_never_started_is_not_run(station: Station) -> None:
    result = await station.recover("run_command", command="touch started")
    assert result.kind == "interrupted"
    assert "no session main" in result.text
    assert not (station.workspace / "started").exists()


async def test_a_sleep_goes_on_until_its_deadline(station: Station) -> None:
    begun = time.time()
    result = await station.recover("sleep", sleep_time=30, deadline=begun + 1)
    assert time.time() >= begun + 1
    assert (result.kind, result.fields["ended_by"], result.fields["away"]) == (
        "sleep",
        "time",
        True,
    )
    assert result.fields["slept"] == 30
    assert "daemon was away" in result.text
    over = await station.recover("sleep", sleep_time=30, deadline=begun - 100)
    assert over.fields["ended_by"] == "time"


async def test_other_calls_say_what_is_there_now(station: Station) -> None:
    edit = await station.recover("edit_file", path="notes.txt", start=1, end=1, content="x")
    assert (edit.kind, "notes.txt has 19 bytes, 3 lines" in edit.text) == ("interrupted", True)
    create = await station.recover("create_file", filename="new.txt", content="x")
    assert "There is no 'new.txt'" in create.text
    evaluation = await station.recover("eval")
    assert (evaluation.kind, "No submission" in evaluation.text) == ("interrupted", True)
    wrong = await station.recover("run_command", order="ls")
    assert (wrong.kind, "no argument" in wrong.text) == ("error", True)
    assert (station.workspace / "notes.txt").read_text() == "first\nsecond\nthird\n"


async def test_a_step_shows_what_commands_and_edits_changed(station: Station) -> None:
    await station("run_command", command="echo more >> notes.txt; mkdir d; seq 3 > d/n.txt")
    await station("create_file", filename="new.txt", content="hello\n")
    closing = await station.environment.close_step(1)
    found = {one.path: (one.kind, one.added, one.removed) for one in closing.files}
    assert found == {
        "notes.txt": ("changed", 1, 0), "d/n.txt": ("added", 3, 0), "new.txt": ("added", 1, 0),
    }  # fmt: skip
    assert "+more" in next(one.diff for one in closing.files if one.path == "notes.txt")
    assert [span.terminal for span in closing.spans] == ["main"]
    assert closing.spans[0].start == 0
    quiet = await station.environment.close_step(2)
    assert (quiet.files, quiet.spans, quiet.snapshot) == ((), (), closing.snapshot)


async def test_spans_of_steps_join_without_a_gap(station: Station) -> None:
    ends = [0]
    for step in range(1, 4):
        await station("run_command", command=f"echo {step}", session_id="s")
        if step == 2:
            await station.again()
        span = (await station.environment.close_step(step)).spans[0]
        assert span.start == ends[-1]
        assert span.end > span.start
        ends.append(span.end)


async def test_a_session_that_was_closed_in_the_step_keeps_its_span(station: Station) -> None:
    await station("run_command", command="echo last words", session_id="s")
    await station("close_session", session_id="s")
    spans = (await station.environment.close_step(1)).spans
    assert [(span.terminal, span.start) for span in spans] == [("s", 0)]
    await station("run_command", command="echo new life", session_id="s")
    again = (await station.environment.close_step(2)).spans
    assert again[0].start == spans[0].end
    assert "last words" not in (await station("get_session_output", session_id="s")).text


async def test_closing_the_same_step_after_a_restart_gives_the_same(station: Station) -> None:
    await station("run_command", command="echo x > x.txt")
    first = await station.environment.close_step(7)
    await station.again()
    (station.workspace / "behind.txt").write_text("made between\n")
    assert await station.environment.close_step(7) == first
    await station("list_files")
    following = await station.environment.close_step(8)
    assert [one.path for one in following.files] == ["behind.txt"]


@pytest.mark.parametrize("ended", ["at the step's end", "before an evaluation"])
async def test_what_a_snapshot_took_is_told_though_nobody_noted_it(
    make_station: MakeStation, tmp_path: Path, ended: str
) -> None:
    """The worker ends between taking the snapshot and saving that it was taken."""
    station = await make_station("echo '{\"overall_score\": 1}'")
    await station("run_command", command="rm notes.txt; mkdir d; seq 3 > d/n.txt")
    state = tmp_path / "root" / "rollouts" / "r1" / "workstation.json"
    before = state.read_bytes()
    if ended == "before an evaluation":
        await station("eval")
    else:
        await station.environment.close_step(1)
    state.write_bytes(before)
    await station.again()
    (station.workspace / "later.txt").write_text("made between\n")
    closing = await station.environment.close_step(1)
    found = {one.path: (one.kind, one.added) for one in closing.files}
    assert found == {
        "notes.txt": ("removed", 0),
        "d/n.txt": ("added", 3),
        "later.txt": ("added", 1),
    }
    assert (await station.environment.close_step(2)).files == ()


async def test_the_given_workspace_is_no_change(station: Station) -> None:
    assert (await station.environment.close_step(1)).files == ()


async def test_a_rollouts_folder_holds_its_state(station: Station, tmp_path: Path) -> None:
    await station("open_file", path="notes.txt")
    assert (tmp_path / "root" / "rollouts" / "r1" / "workstation.json").is_file()
    assert not (station.workspace / "workstation.json").exists()


async def test_ending_a_rollout_ends_its_terminals(station: Station) -> None:
    await station("run_command", command="sleep 60", wait_for_completion=False)
    await station.environment.close(ended=True)
    await station.again()
    assert (await station("list_sessions")).fields["sessions"] == []


async def test_a_session_whose_tmux_was_killed_is_called_dead_and_replaced(
    station: Station,
) -> None:
    await station("run_command", command="cd /tmp; echo begun; sleep 60", wait_for_completion=False)
    await _tmux(station, "kill-server")
    await asyncio.sleep(0.5)  # the pane is hung up a moment later
    why = "dead, its tmux session was ended from outside, and what ran in it was ended too"
    assert why in (await station("get_session_status")).text
    assert f"main: {why}" in (await station("list_sessions")).text
    assert why in (await station("get_session_output")).text
    unknown = await station.recover("run_command", command="x")
    assert "not running, its tmux session was ended" in unknown.text
    killed = await station("kill_session_processes", force=True)
    assert "still runs" not in killed.text
    again = await station("run_command", command="pwd")
    assert again.success and "/workspace" in again.text
    assert f"The session was {why}; this ran in a new shell" in again.text
    assert "new shell" not in (await station("run_command", command="pwd")).text


async def test_a_command_that_ends_its_own_tmux_is_not_called_never_run(
    make_station: MakeStation,
) -> None:
    station = await make_station(sandbox="none")
    ended = await station(
        "run_command", command="tmux -S $(cat ../terminals/socket) kill-server; sleep 9"
    )
    assert not ended.success and "nothing ran" not in ended.text
    assert "dead, its tmux session was ended from outside" in ended.text
    assert "the next command opens a new" in ended.text


async def _tmux(station: Station, command: str) -> None:
    socket = (station.workspace.parent / "terminals" / "socket").read_text().strip()
    process = await asyncio.create_subprocess_exec("tmux", "-S", socket, command)
    assert await process.wait() == 0
