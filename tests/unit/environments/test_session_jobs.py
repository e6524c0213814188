"""Which jobs are told, and how each stands, from what sessions say of themselves."""

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from houston_daemon.environments.workstation import session_records
from houston_daemon.environments.workstation.session_jobs import SessionJobs
from houston_daemon.environments.workstation.session_records import SessionRecords
from houston_daemon.environments.workstation.workstation_state import WorkstationState
from houston_daemon.hosts.host_protocol import BackgroundCommand, TerminalStatus
from houston_shared.errors import HoustonError
from houston_shared.records import JobReport

IDLE = TerminalStatus("main", True, False, 0, "python train.py", 90, 1.0, log_start=10,
                      command_began=5.0, command_ended=8.0)  # fmt: skip
BUSY = replace(IDLE, busy=True, exit_code=None, command_ended=0.0)
BESIDE = BackgroundCommand("7.1", "serve --all", 5.0, output="/workspace/out.log")
GONE = replace(BESIDE, ended=9.0, last_line="bye")
APART, APART_GONE = replace(IDLE, background=(BESIDE,)), replace(IDLE, background=(GONE,))


class Told:
    """What was told, as the recorder would be."""

    def __init__(self, state: WorkstationState | None = None, step: int = 3) -> None:
        """step: which is open; 0 for a worker that has heard of none."""
        self.state = state or WorkstationState()
        self.reports: list[JobReport] = []
        self.refused: set[str] = set()
        self.heard = asyncio.Event()
        self.jobs = SessionJobs("local", lambda: self.state, self._take)
        if step:
            self.jobs.hear(step, "the call")

    async def _take(self, job: JobReport, requests: str) -> None:
        if job.id in self.refused:
            raise HoustonError(f"{job.id} is refused.")
        self.reports.append(job)
        self.heard.set()

    def tell(self) -> list[tuple[str, bool, int | None, str]]:
        """Tell what is news: id, whether it has ended, exit code, last line."""
        self.reports.clear()
        asyncio.run(self.jobs.report_news(self._last_line))
        return [(job.id, bool(job.ended_at), job.exit_code, job.last_line) for job in self.reports]

    async def _last_line(self, session: str, start: int, end: int) -> str:
        return f"of {session} {start} to {end}"


FOREGROUND, BACKGROUND = "main@10", "main#7.1"
RUNS = (FOREGROUND, False, None, "")


def test_a_command_that_outlives_its_call_is_told_twice() -> None:
    told = Told()
    told.jobs.note(BUSY)
    assert told.tell() == [], "its call waits for it"
    told.jobs.left_running(BUSY)
    assert told.tell() == [RUNS]
    told.jobs.note(BUSY)
    assert told.tell() == []
    told.jobs.note(replace(IDLE, exit_code=3))
    assert told.tell() == [(FOREGROUND, True, 3, "of main 10 to 90")]
    assert (told.reports[0].started_at, told.reports[0].ended_at) == (5_000_000, 8_000_000)
    told.jobs.note(replace(IDLE, exit_code=3))
    assert told.tell() == [] and told.state.jobs == {}


def test_what_runs_apart_is_told_and_its_exit_code_when_the_shell_has_told() -> None:
    told = Told()
    told.jobs.note(APART)
    assert told.tell() == [(BACKGROUND, False, None, "")]
    assert (told.reports[0].step, told.reports[0].output) == (3, "/workspace/out.log")
    told.jobs.note(APART_GONE)
    assert told.tell() == [(BACKGROUND, True, None, "bye")]
    told.jobs.note(APART_GONE)
    assert told.tell() == []
    told.jobs.note(replace(IDLE, background=(replace(GONE, exit_code=4),)))
    assert told.tell() == [(BACKGROUND, True, 4, "bye")]
    told.jobs.note(replace(IDLE, background=(replace(GONE, exit_code=4),)))
    assert told.tell() == [] and told.state.jobs == {}


LOST = {
    "another command runs there": replace(BUSY, log_start=500),
    "another shell is there": replace(IDLE, log_start=700, command=""),
}


@pytest.mark.parametrize("case", LOST)
def test_how_it_ended_may_be_unknown(case: str) -> None:
    told = Told()
    told.jobs.left_running(BUSY)
    told.jobs.note(replace(BUSY, background=(BESIDE,)))
    told.tell()
    told.jobs.note(LOST[case])
    assert sorted((job[0], job[1], job[2]) for job in told.tell()) == [
        (BACKGROUND, True, None),
        (FOREGROUND, True, None),
    ]
    assert [job.end for job in told.reports] == ["", ""], "so that nobody calls it a failure"


def test_who_ended_it_is_told() -> None:
    told = Told()
    told.jobs.left_running(BUSY)
    told.jobs.stopping("main")
    told.jobs.note(replace(IDLE, exit_code=143))
    told.jobs.note(replace(APART, name="other"))
    told.jobs.closed(replace(IDLE, name="other", alive=False))
    told.tell()
    assert {job.session: (job.stopped_by, job.end) for job in told.reports} == {
        "main": ("agent", ""),
        "other": ("agent", "its session was closed"),
    }


def test_an_end_that_was_not_stored_is_told_by_the_next_worker() -> None:
    told = Told()
    told.jobs.left_running(BUSY)
    told.tell()
    told.jobs.note(replace(IDLE, exit_code=3))
    following = Told(told.state)
    following.jobs.begin()
    assert following.tell() == [(FOREGROUND, True, 3, "of main 10 to 90")]
    assert following.state.jobs == {}


def test_what_runs_apart_is_of_the_step_that_is_open() -> None:
    """A worker that starts looks at sessions before the agent asks for anything."""
    told = Told(step=0)
    told.jobs.note(APART)
    assert told.tell() == [] and told.state.jobs == {}
    told.jobs.hear(3, "the call")
    told.jobs.note(APART)
    assert told.tell() == [(BACKGROUND, False, None, "")]
    assert told.reports[0].step == 3


def test_a_job_that_was_kept_without_a_step_is_noted_anew() -> None:
    before = Told()
    before.jobs.note(APART)
    kept = {name: msgspec.structs.replace(job, step=0) for name, job in before.state.jobs.items()}
    told = Told(WorkstationState(jobs=kept), step=0)
    told.jobs.begin()
    assert told.tell() == []
    told.jobs.hear(4, "the call")
    told.jobs.note(APART)
    assert [(job, told.reports[0].step) for job in told.tell()] == [
        ((BACKGROUND, False, None, ""), 4)
    ]


def test_a_job_that_is_refused_keeps_no_other_from_being_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = Told()
    told.refused = {FOREGROUND}
    told.jobs.left_running(BUSY)
    told.jobs.note(replace(BUSY, background=(BESIDE,)))
    assert told.tell() == [(BACKGROUND, False, None, "")]
    assert told.tell() == []
    assert caplog.text.count("is refused") == 1
    told.refused.clear()
    assert told.tell() == [RUNS], "it is tried again"


async def test_sessions_are_watched_on_after_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_records, "_EVERY", 0.01)
    told = Told()
    told.refused = {FOREGROUND}

    class Quiet:
        async def terminals(self) -> list[TerminalStatus]:
            return []

    host: Any = Quiet()
    records = SessionRecords(host, lambda: told.state, told.jobs)
    records.open(told._last_line)
    told.jobs.left_running(BUSY)
    await asyncio.sleep(0.05)
    assert told.reports == []
    told.refused.clear()
    try:
        await asyncio.wait_for(told.heard.wait(), 20)
    finally:
        await records.close()
