"""Jobs on the screen: a mark at home, a strip above the trajectory, and the way to each."""

import asyncio
import json
from pathlib import Path

import pytest

from houston_console.panes.jobs_pane import JobList, JobsDialog
from houston_console.screens.home_list import HomeList
from houston_shared.command import main
from houston_shared.records import TerminalSpan
from houston_shared.terminal_log_files import job_lines_file, segment_file, terminals_folder
from houston_shared.times_and_counts import now_us
from tests.console.conftest import SMALL, Seat, Sit
from tests.console.home_builder import HomeBuilder

MINUTE = 60_000_000
LOG = b"\x1b]7771;p;\x07/workspace $ serve\r\nup\r\nstep 1\rstep 2\x1b[31m of 9\x1b[0m"
HOSTILE = "boom \x1b[2J\x07 \u202egnp.exe\u202c " + "x" * 5_000


def fill(builder: HomeBuilder, folder: Path, steps: int = 6) -> None:
    """A rollout that has left five things running; one failed while the agent sleeps."""
    now = now_us()
    builder.start("r", host_root=str(folder / "host"))
    for step in range(1, steps + 1):
        builder.whole("r", step, "On.")
    log = segment_file(terminals_folder(folder / "host", "r") / "serve", 0)
    log.parent.mkdir(parents=True)
    log.write_bytes(LOG)
    hour = 60 * MINUTE
    builder.job("r", 1, "data", "python fetch.py", started_at=now - 5 * hour,
                ended_at=now - 4 * hour, exit_code=0, last_line="12 rows", log_end=9)  # fmt: skip
    builder.job("r", 2, "serve", "serve --port 80", started_at=now - 3 * hour - 5 * MINUTE)
    builder.job("r", 3, "train", "python train.py", started_at=now - 4 * hour)
    builder.job("r", 4, "main", "tensorboard &", started_at=now - 40 * MINUTE, log_start=None,
                id="main#77.1", output="/workspace/board.log")  # fmt: skip
    builder.job("r", 3, "train", "python train.py", started_at=now - 4 * hour, log_end=90,
                ended_at=now - 3 * hour - MINUTE, exit_code=1, failed=True,
                last_line=HOSTILE)  # fmt: skip


def keep_lines(folder: Path, lines: object) -> None:
    """What the terminal of the job that was started with `&` keeps of it."""
    terminal = terminals_folder(folder / "host", "r") / "main"
    terminal.mkdir(parents=True, exist_ok=True)
    job_lines_file(terminal).write_text(json.dumps(lines))


def strip(seat: Seat) -> str:
    return seat.text("#jobs-line")


async def test_home_says_what_runs_and_what_failed(
    builder: HomeBuilder, tmp_path: Path, sit: Sit
) -> None:
    fill(builder, tmp_path)
    builder.start("other")
    for size in (SMALL, (120, 35), (200, 60)):
        async with sit(builder.home, size=size, at_home=True) as seat:
            await seat.until(lambda s=seat: "2 jobs, train ✗1 3 h ago" in s.text(HomeList), "mark")
            assert "background job failed: pyth" in seat.text(HomeList)


async def test_the_strip_says_what_runs_and_what_it_prints(
    builder: HomeBuilder, tmp_path: Path, sit: Sit
) -> None:
    fill(builder, tmp_path)
    async with sit(builder.home, size=(200, 60)) as seat:
        await seat.until(lambda: "step 2 of 9" in strip(seat), "the log was read")
        assert "train ✗1 3 h ago" in strip(seat)
        assert "▶ serve 3h05" in strip(seat)
        assert "▶ main 40m prints to /workspace" in strip(seat)
        builder.state("r", "finished", "worker")
        await seat.app.refresh_from_store()
        await seat.until(lambda: not seat.app.watch_screen.jobs.display, "nothing runs any more")


async def test_a_rollout_without_jobs_has_no_strip_and_says_so(
    builder: HomeBuilder, sit: Sit
) -> None:
    builder.start("r")
    builder.whole("r", 1)
    async with sit(builder.home) as seat:
        assert not seat.app.watch_screen.jobs.display
        await seat.press("percent_sign")
        await seat.until(lambda: "It has no jobs" in seat.hint(), "said")


async def test_from_a_job_to_its_step_and_to_its_terminal(
    builder: HomeBuilder, tmp_path: Path, sit: Sit
) -> None:
    fill(builder, tmp_path)
    async with sit(builder.home) as seat:
        await seat.press("percent_sign")
        await seat.until(lambda: isinstance(seat.app.screen, JobsDialog), "all jobs")
        listed = seat.lines(JobList)
        assert [row.split()[:2] for row in listed[:4]] == [
            ["▶", "running"], ["▶", "running"], ["✗", "failed"], ["✓", "done"],
        ]  # fmt: skip
        await seat.press("down", "down")
        dialog = seat.app.screen
        assert isinstance(dialog, JobsDialog)
        details = "\n".join(
            dialog.details.render_line(y).text for y in range(dialog.details.size.height)
        )
        assert "failed, exit code 1" in details and "boom" in details
        assert not {"\x1b", "\x07", "\u202e"} & set(details), "what it printed moves no cursor"
        await seat.press("enter")
        await seat.until(lambda: seat.transcript.cursor == 3, "its step")
        await seat.press("percent_sign")
        await seat.until(lambda: isinstance(seat.app.screen, JobsDialog), "all jobs")
        await seat.press("down", "t")
        terminals = seat.app.watch_screen.terminals
        await seat.until(lambda: "step 2 of 9" in seat.text("#terminal-text"), "its terminal")
        assert terminals.names[terminals.chosen] == ("local", "serve")
        assert seat.app.watch_screen.area == "terminals"


async def test_a_job_that_ends_is_told_while_the_console_is_open(
    builder: HomeBuilder, tmp_path: Path, sit: Sit
) -> None:
    now = now_us()
    builder.start("r")
    builder.whole("r", 1)
    builder.job("r", 1, "train", "python train.py", started_at=now - 5 * MINUTE)
    async with sit(builder.home) as seat:
        await seat.until(lambda: "▶ train 5m" in strip(seat), "it runs")
        builder.job("r", 1, "train", "python train.py", started_at=now - 5 * MINUTE,
                    ended_at=now, exit_code=2, failed=True)  # fmt: skip
        await seat.app.refresh_from_store()
        await seat.until(lambda: "train ✗2 just now" in strip(seat), "it has failed")


async def test_logs_of_a_rollout_that_was_left_are_not_those_of_the_next(
    builder: HomeBuilder, tmp_path: Path, sit: Sit
) -> None:
    fill(builder, tmp_path)
    async with sit(builder.home) as seat:
        jobs = seat.app.watch_screen.jobs
        jobs.switch_rollout("r")
        reading = asyncio.create_task(jobs._read_printed("r"))
        await asyncio.sleep(0)  # it waits for the store
        jobs.switch_rollout("next")
        await reading
        assert jobs._host_root is None


async def test_what_a_job_apart_printed_last_is_said_everywhere(
    builder: HomeBuilder, tmp_path: Path, sit: Sit, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(builder, tmp_path)
    builder.start("other")
    keep_lines(tmp_path, {"77.1": "epoch 3 \x1b[2J\u202e of 9", "78.1": "of another"})
    async with sit(builder.home, "r", size=(200, 60)) as seat:
        await seat.until(lambda: "▶ main 40m epoch 3" in strip(seat), "the strip")
        assert not {"\x1b", "\u202e"} & set(strip(seat))
    async with sit(builder.home, size=(120, 35), at_home=True) as seat:
        await seat.until(lambda: "▶ main 40m epoch 3" in seat.text("#preview-text"), "the preview")
        assert "▶ serve 3h05 step 2 of 9" in seat.text("#preview-text")
    assert main(["--home", str(builder.home.path), "jobs", "r", "--state", "running"]) == 0
    printed = capsys.readouterr().out
    assert "epoch 3" in printed and "\u202e" not in printed and "of another" not in printed


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param({}, id="nothing yet"),
        pytest.param([1, 2], id="a list"),
        pytest.param({"77.1": {"deep": 1}}, id="no text"),
        pytest.param({"77.1": "x" * 300_000}, id="more than a host writes"),
    ],
)
async def test_a_file_of_last_lines_that_is_none_is_no_line(
    builder: HomeBuilder, tmp_path: Path, sit: Sit, lines: object
) -> None:
    fill(builder, tmp_path)
    keep_lines(tmp_path, lines)
    async with sit(builder.home, "r", size=(200, 60)) as seat:
        await seat.until(lambda: "step 2 of 9" in strip(seat), "the logs were read")
        assert "▶ main 40m prints to /workspace" in strip(seat)


async def test_the_terminal_of_a_job_elsewhere_names_the_key_that_fetches_its_log(
    builder: HomeBuilder, sit: Sit
) -> None:
    builder.start("r", host_root="/nowhere")
    span = TerminalSpan(host="gpu", terminal="train", start=0, end=9)
    builder.whole("r", 1, spans=(span,))
    builder.job("r", 1, "train", "python train.py", started_at=now_us() - MINUTE, host="gpu")
    async with sit(builder.home) as seat:
        await seat.press("percent_sign")
        await seat.until(lambda: isinstance(seat.app.screen, JobsDialog), "all jobs")
        await seat.press("t")
        await seat.until(lambda: "on the host gpu, not here: F fetches it" in seat.hint(), "how")
        terminals = seat.app.watch_screen.terminals
        assert terminals.names[terminals.chosen] == ("gpu", "train")
