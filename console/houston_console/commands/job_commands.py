"""`houston jobs R`: the commands that an agent left running, and how each ended.

What a job prints while it runs is read from its session's log, where that lies on this machine.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

from msgspec.structs import replace

from houston_console.commands import command_options
from houston_console.commands.output_page import OutputPage, span
from houston_console.commands.rollout_summary import cut_text
from houston_shared import command_output, terminal_log_files
from houston_shared.config import LoadedConfiguration
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.errors import ExitCode
from houston_shared.records import ELSEWHERE
from houston_shared.store import job_queries, rollout_queries
from houston_shared.store.job_queries import JobRow, JobState
from houston_shared.store.rollout_queries import RolloutRow
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import format_clock, local_time, now_us

STATE_TONES: dict[JobState, str] = {"running": "good", "done": "good", "failed": "bad"}
LINE_CHARACTERS = 200
"""Characters of a command's first line, and of the last line that it printed."""


def add_jobs_arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--state`, `--json`."""
    command_options.add_rollout_argument(parser)
    states = get_args(JobState)
    parser.add_argument("--state", default="", choices=states, help="only jobs in this state")
    command_options.add_json_option(parser, "one JSON line per job")


def run_jobs(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Print jobs in the order in which they began."""
    with Reader(loaded.home) as reader:
        row = reader.run(rollout_queries.find_rollout(arguments.rollout))
        jobs = reader.run(job_queries.list_jobs(row.id))
        spec = reader.run(rollout_queries.read_spec_if_kept(row))
        known_at = rollout_queries.last_known_at(reader)
        command_options.note_archived(reader, row.id)
    matching_jobs = [
        with_printed_line(job, row.id, spec.host_root if spec else "")
        for job in jobs
        if arguments.state in ("", job.state)
    ]
    now, page = known_at or now_us(), OutputPage()
    for job in matching_jobs:
        if arguments.json:
            command_output.print_json_line(job_queries.job_json(job, now))
        else:
            _print_job(page, job, now)
    if not jobs:
        command_output.print_note(_no_jobs_text(row))
    elif not matching_jobs:
        command_output.print_note(
            f"No job of {row.id} is {arguments.state}.\n  next: houston jobs {row.id}"
        )
    elif known_at:
        command_output.print_note(rollout_queries.last_known_sentence(known_at))
    return int(ExitCode.DONE)


def with_printed_line(job: JobRow, rollout: str, host_root: str) -> JobRow:
    """The job with the last line that it printed, where that is known here only: it runs, or its
    session was closed. host_root: where this machine keeps logs; empty for nowhere.
    """
    if job.last_line or job.host != LOCAL_HOST or not host_root:
        return job
    if not terminal_log_files.is_terminal_name(job.session):
        return job
    folder = terminal_log_files.terminals_folder(Path(host_root), rollout) / job.session
    if job.log_start is not None:
        line = terminal_log_files.read_last_line(folder, job.log_start, job.log_end)
    elif job.ended_at is None:  # started apart, as with `&`: its terminal keeps the line
        line = terminal_log_files.read_job_line(folder, job.id.rpartition("#")[2])
    else:
        return job
    return replace(job, last_line=line)


def read_printed_lines(jobs: Iterable[JobRow], rollout: str, host_root: str) -> dict[str, str]:
    """By id, the last line that each job printed; empty where that is not known. Reads files."""
    return {job.id: with_printed_line(job, rollout, host_root).last_line for job in jobs}


def job_state_text(job: JobRow) -> str:
    """How a job stands, with its exit code and who ended it."""
    parts: list[str] = [job.state]
    if job.stopped_by:
        parts = ["stopped by the agent" if job.stopped_by == "agent" else "ended with its rollout"]
    if job.exit_code is not None:
        parts.append(f"exit code {job.exit_code}")
    elif job.state == "ended":
        parts.append("exit code not known")
    if job.ending:
        parts.append(job.ending)
    return ", ".join(parts)


def _print_job(page: OutputPage, job: JobRow, now: int) -> None:
    place = job.session if job.host == LOCAL_HOST else f"{job.host}:{job.session}"
    ran = "for" if job.ended_at is None else "ran"
    facts = [
        f"step {job.step}",
        f"session {place}",
        f"started {local_time(job.started_at)}",
        f"{ran} {format_clock(job.seconds(now))}",
    ]
    if job.output:
        facts.append(f"prints to {job.output}")
    page.line(
        span(job_state_text(job), STATE_TONES.get(job.state, "")),
        span("  " + " · ".join(facts), "dim"),
    )
    page.line("  ", span(cut_text(job.command, LINE_CHARACTERS), "call"))
    if job.last_line:
        page.line("  ", span(cut_text(job.last_line, LINE_CHARACTERS)))


def _no_jobs_text(row: RolloutRow) -> str:
    if row.sandbox == ELSEWHERE:
        return f"{row.id} was sampled elsewhere: its background commands are not known."
    if row.parent:
        return (
            f"{row.id} has no jobs of its own: no command continues in a branch."
            f"\n  next: houston jobs {row.parent}"
        )
    return (
        f"{row.id} has no jobs: no command has outlived the call that started it."
        f"\n  next: houston steps {row.id}"
    )
