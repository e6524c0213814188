"""The strip of jobs above the trajectory, and the dialog that lists all of them.

The strip is hidden while nothing runs and nothing has failed. Its facts come with the board
(`attention_ranking`); only the last line of a running job is read from its log here, and no key
waits for that. A person can go from a job to its step or to its terminal.
"""

import asyncio
from typing import Any, NamedTuple

from textual.app import ComposeResult
from textual.containers import Vertical

from houston_console.app.key_bindings import key_label
from houston_console.commands.job_commands import (
    job_state_text,
    read_printed_lines,
    with_printed_line,
)
from houston_console.screens.base_screen import GoToStep, GoToTerminalLine, Pane, post_message_as
from houston_console.screens.job_lines import (
    job_details,
    job_heads,
    job_line,
    job_place,
    jobs_strip,
    newest_first,
)
from houston_console.widgets.dialogs import Dialog
from houston_console.widgets.line_view import (
    FixedLines,
    set_frame_subtitle,
    set_frame_title,
)
from houston_console.widgets.list_filter import FilteredList
from houston_console.widgets.styled_text import TextLine, line
from houston_shared.errors import HoustonError
from houston_shared.records import ENDED_STATES
from houston_shared.store import job_queries, rollout_queries
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.attention_ranking import RolloutOverview
from houston_shared.store.job_queries import NO_JOBS, JobRow, JobSummary
from houston_shared.store.journal_events import ReadPlan
from houston_shared.times_and_counts import now_us

LOOK_SECONDS = 5.0
"""How often it is looked at what running jobs print."""
DETAIL_LINES = 7


class RolloutJobs(NamedTuple):
    """The jobs of a rollout, and where this machine keeps the logs of its sessions."""

    jobs: list[JobRow]
    host_root: str


def read_rollout_jobs(rollout: str) -> ReadPlan[RolloutJobs]:
    """All jobs of a rollout, in the order in which they began."""
    row = yield from rollout_queries.find_rollout(rollout)
    spec = yield from rollout_queries.read_spec_if_kept(row)
    jobs = yield from job_queries.list_jobs(rollout)
    return RolloutJobs(jobs, spec.host_root if spec else "")


class JobChoice(NamedTuple):
    """Where to go from a job."""

    job: JobRow
    terminal: bool
    """To its terminal, and not to its step."""


class JobList(FilteredList[JobRow]):
    """One line a job."""

    def line_at(self, number: int) -> TextLine:
        """The line at this position."""
        return job_line(self.items[number], now_us(), self.line_cells)

    def filter_text(self, item: JobRow) -> str:
        """State, place, command, and what it printed last."""
        words = (
            job_state_text(item),
            str(item.step),
            job_place(item),
            item.command,
            item.last_line,
        )
        return " ".join(words)

    def cursor_moved(self) -> None:
        """The details below are of another job."""
        if isinstance(self.screen, JobsDialog):
            self.screen.show_details()


class JobsDialog(Dialog[JobChoice | None]):
    """Answers with the job that was chosen, and where to go."""

    BINDINGS = [
        ("escape,q,percent_sign", "close", "close"),
        ("enter", "choose(False)", "its step"),
        ("t", "choose(True)", "its terminal"),
    ]

    def __init__(self, jobs: list[JobRow]) -> None:
        super().__init__()
        self.list = JobList(newest_first(jobs))
        self.heads = FixedLines(focusable=False)
        self.details = FixedLines(focusable=False)

    def compose(self) -> ComposeResult:
        """Heads, the list, and the job at the cursor."""
        with Vertical(id="results") as box:
            set_frame_title(box, "Jobs: commands that outlived the call which started them")
            set_frame_subtitle(box, line("enter its step   t its terminal   esc close"))
            self.heads.styles.height = 1
            self.details.styles.height = DETAIL_LINES
            yield self.heads
            yield self.list
            yield self.details

    def on_mount(self) -> None:
        """Begin with the newest that runs."""
        self.list.focus()
        self.heads.show_lines(lambda width: [job_heads(width)])
        self.show_details()

    def show_details(self) -> None:
        """Show all of the job at the cursor."""
        job = self.list.under_cursor
        self.details.show_lines(lambda width: [(), *job_details(job, now_us(), width)])

    def action_choose(self, terminal: bool) -> None:
        """Close, and go to the job's step or terminal."""
        job = self.list.under_cursor
        self.dismiss(JobChoice(job, terminal) if job else None)


class JobsPane(Pane):
    """One line of what runs beside the agent, and what failed last."""

    def __init__(self, reader: AsyncReader, **arguments: Any) -> None:
        """reader: one that no key waits for."""
        super().__init__(**arguments)
        self.strip = FixedLines(focusable=False, id="jobs-line")
        self._reader = reader
        self._rollout, self._summary = "", NO_JOBS
        self._host_root: str | None = None
        """Where the logs of the rollout's sessions lie; None before it was read."""
        self._printed: dict[str, str] = {}
        self._is_looking = False

    def compose(self) -> ComposeResult:
        """The strip."""
        yield self.strip

    def on_mount(self) -> None:
        """Begin without a rollout."""
        self.display = False
        self.set_interval(LOOK_SECONDS, self._look)

    def on_resize(self) -> None:
        """It is shown now, or is as wide as it was not."""
        if not self._printed:
            self._look()

    def switch_rollout(self, rollout: str) -> None:
        """Another rollout, of which nothing is known yet."""
        self._rollout, self._host_root, self._printed = rollout, None, {}
        self._show(NO_JOBS)

    def show_overview(self, overview: RolloutOverview | None) -> None:
        """How the rollout stands may be another."""
        if overview is None or overview.rollout.id != self._rollout:
            return
        before = self._summary
        ended = overview.rollout.state in ENDED_STATES
        self._show(NO_JOBS if ended else overview.jobs)
        if [job.id for job in before.running] != [job.id for job in self._summary.running]:
            self._look()

    def _show(self, summary: JobSummary) -> None:
        self._summary = summary
        self.display = summary != NO_JOBS
        self._draw()

    def _draw(self) -> None:
        summary, printed, key = self._summary, self._printed, key_label("whole", "jobs")
        self.strip.show_lines(lambda width: [jobs_strip(summary, printed, now_us(), width, key)])

    def _look(self) -> None:
        """See what running jobs printed last; nothing while none runs or nobody can see it."""
        is_visible = self.app.screen is self.screen and self.size.width > 0
        if self._summary.running and is_visible and not self._is_looking:
            self.run_worker(self._read_printed(self._rollout), group="jobs", exclusive=True)

    async def _read_printed(self, rollout: str) -> None:
        self._is_looking = True
        try:
            root = self._host_root
            if root is None:
                root = (await self._reader.run(read_rollout_jobs(rollout))).host_root
                if rollout != self._rollout:
                    return  # another was opened meanwhile, whose logs lie elsewhere
                self._host_root = root
            running = self._summary.running
            printed = await asyncio.to_thread(read_printed_lines, running, rollout, root)
        except HoustonError as problem:
            self.report_problem(problem)
            return
        finally:
            self._is_looking = False
        if rollout == self._rollout:
            self._printed = printed
            self._draw()

    async def list_jobs(self) -> None:
        """List all jobs of the rollout; where to go from there."""
        rollout = self._rollout
        try:
            listing = await self._reader.run(read_rollout_jobs(rollout))
        except HoustonError as problem:
            self.report_problem(problem)
            return
        if not listing.jobs:
            self.show_notice("It has no jobs: no command has outlived the call that started it.")
            return
        jobs = await asyncio.to_thread(
            lambda: [with_printed_line(job, rollout, listing.host_root) for job in listing.jobs]
        )
        if rollout == self._rollout:
            self.app.push_screen(JobsDialog(jobs), self._go_to)

    def _go_to(self, choice: JobChoice | None) -> None:
        if choice is None:
            return
        job = choice.job
        if not choice.terminal:
            post_message_as(self, GoToStep(job.step))
            return
        byte = -1 if job.log_start is None else job.log_start
        post_message_as(
            self, GoToTerminalLine(self._rollout, job.step, job.session, byte, job.host)
        )
