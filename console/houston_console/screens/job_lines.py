"""Jobs in words: the mark of a rollout in a list, the strip of one that is open, a line for each.

A job is a command that outlived the call which started it (`houston_shared.store.job_queries`).
Pure: it reads nothing and knows no widget.
"""

from collections.abc import Sequence

from houston_console.commands.job_commands import job_state_text
from houston_console.screens.rollout_lists import format_moment
from houston_console.widgets.styled_text import (
    TextLine,
    TextSpan,
    Tone,
    fit_text,
    hanging_block,
    justify_line,
    line,
    line_width,
    span,
)
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.records import ENDED_STATES
from houston_shared.store.attention_ranking import RolloutOverview
from houston_shared.store.job_queries import FailedJob, JobRow, JobState, JobSummary
from houston_shared.times_and_counts import format_age, format_compact_duration, pluralize

JOB_GLYPHS: dict[JobState, tuple[str, Tone]] = {
    "running": ("▶", "success"),
    "done": ("✓", "dim"),
    "failed": ("✗", "error"),
    "stopped": ("■", "dim"),
    "ended": ("○", "dim"),
}
"""Glyph and tone of each state."""
SESSION_CELLS = 14
STATE_CELLS = 12
MIN_FACT_CELLS = 16
"""Cells of the strip that each job has; those for which there is no room are counted."""
MORE_CELLS = " +99"


def job_place(job: JobRow) -> str:
    """The session of a job, with its host where that is not this machine."""
    return job.session if job.host == LOCAL_HOST else f"{job.host}:{job.session}"


def job_summary(overview: RolloutOverview, now: int) -> TextLine:
    """The jobs of a rollout in a few cells, such as `2 jobs, train ✗1 3 h ago`, with room behind
    them; nothing where none runs and none failed. now: UTC microseconds.
    """
    if overview.rollout.state in ENDED_STATES:
        return ()
    parts: list[TextSpan] = []
    if overview.jobs.running:
        parts.append(span(pluralize(len(overview.jobs.running), "job"), "success"))
    if failed := overview.jobs.failed:
        parts += [span(", ", "dim")] if parts else []
        parts.append(span(_failed_text(failed, now), "error"))
    return line(*parts, span("  ")) if parts else ()


def _failed_text(failed: FailedJob, now: int) -> str:
    job = failed.job
    count = f"{failed.failures} failed, " if failed.failures > 1 else ""
    age = format_age(job.ended_at, now) if job.ended_at else ""
    return f"{count}{job_place(job)} {JOB_GLYPHS[job.state][0]}{job.exit_code or ''} {age}"


def jobs_strip(
    summary: JobSummary, printed: dict[str, str], now: int, width: int, key: str
) -> TextLine:
    """One line of what runs and what failed last, as far as it fits. printed: by id, the last line
    of those that run. key: what lists all jobs.
    """
    keys = line(span(f"  {key} ", "tool"), span("all jobs ", "dim"))
    facts: list[TextLine] = []
    if failed := summary.failed:
        facts.append(line(span(_failed_text(failed, now), "error")))
    facts += [running_job(job, printed.get(job.id, ""), now) for job in summary.running]
    room = width - line_width(keys)
    shown_facts = facts
    if _least_cells(facts) > room:
        while len(shown_facts) > 1 and _least_cells(shown_facts) + len(MORE_CELLS) > room:
            shown_facts = shown_facts[:-1]
    more = (
        span(f"+{len(facts) - len(shown_facts)}", "dim")
        if len(shown_facts) < len(facts)
        else span("")
    )
    parts, room = [span(" ")], room - line_width((more,))
    for at, fact in enumerate(shown_facts):
        cells_left = room - line_width(parts)
        parts += [*_cut(fact, cells_left - _least_cells(shown_facts[at + 1 :]) - 1), span("  ")]
    return justify_line((*parts, more), keys, width)


def running_job(job: JobRow, printed: str, now: int) -> TextLine:
    """A job that runs: its place, how long, and what it printed last, or else what it is."""
    duration = format_compact_duration(job.seconds(now))
    head = f"{JOB_GLYPHS['running'][0]} {job_place(job)} {duration}"
    says = printed or (f"prints to {job.output}" if job.output else job.command)
    return line(span(head, "success"), span(f" {' '.join(says.split())}", "dim"))


def _least_cells(facts: Sequence[TextLine]) -> int:
    return sum(min(line_width(fact), MIN_FACT_CELLS) + 2 for fact in facts) + 1


def _cut(parts: TextLine, cells: int) -> TextLine:
    """At most so many cells of a line."""
    spans: list[TextSpan] = []
    for part in parts:
        width = line_width((part,))
        if width > cells:
            return (*spans, TextSpan(fit_text(part.text, cells), part.tone)) if cells else (*spans,)
        spans.append(part)
        cells -= width
    return tuple(spans)


def job_line(job: JobRow, now: int, width: int) -> TextLine:
    """One job of a list: state, step, session, how long, when it ended, its command."""
    glyph, tone = JOB_GLYPHS[job.state]
    code = f" {job.exit_code}" if job.exit_code else ""
    ended = format_age(job.ended_at, now) if job.ended_at else ""
    return justify_line(
        line(
            span(f" {glyph} ", tone),
            TextSpan(fit_text(f"{job.state}{code}", STATE_CELLS), tone),
            span(f"{job.step:>6}  ", "number"),
            TextSpan(fit_text(job_place(job), SESSION_CELLS), "strong"),
            span(f"{format_compact_duration(job.seconds(now)):>7}  "),
            span(f"{ended:<12}", "dim"),
            span(" ".join(job.command.split()), "tool"),
        ),
        (),
        width,
    )


def job_heads(width: int) -> TextLine:
    """What stands above the list."""
    heads = (
        f"   {'state':<{STATE_CELLS}}{'step':>6}  {'session':<{SESSION_CELLS}}{'ran':>7}"
        f"  {'ended':<12}command"
    )
    return justify_line(line(span(heads, "faint")), (), width)


def job_details(job: JobRow | None, now: int, width: int) -> list[TextLine]:
    """All of one job: its command, how it ended, and the last line that it printed."""
    if job is None:
        return []
    when = f"started {format_moment(job.started_at, now)}"
    if job.ended_at:
        when += f", ended {format_moment(job.ended_at, now)}"
    where = f", prints to {job.output}" if job.output else ""
    tone = JOB_GLYPHS[job.state][1]
    rows = hanging_block(span(" $ ", "key"), job.command, width, "tool")[:3]
    rows += hanging_block(span("   "), f"{job_state_text(job)}; {when}{where}", width, tone)[:2]
    if job.last_line:
        rows += hanging_block(span(" ▸ ", "key"), job.last_line, width, "text")[:2]
    return rows


def newest_first(jobs: Sequence[JobRow]) -> list[JobRow]:
    """Those that run, then the others, each the newest first."""
    return sorted(jobs, key=lambda job: (job.ended_at is not None, -job.started_at))
