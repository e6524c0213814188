"""How a rollout is described in one line: state, reason, scores, durations, and the table of
them.

Adds to the rows what only the home's other files say: a full disk, a wait for a GPU or a worker.
The table fits its terminal by leaving out columns in a fixed order. Used by the commands and by
the console's screens; it reads no events.
"""

import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from houston_console.commands.output_page import COLUMN_GAP, OutputPage, OutputSpan, span
from houston_shared import gpu_leases, home_lock, node_places, worker_waits
from houston_shared.home import Home
from houston_shared.records import ELSEWHERE, ENDED_STATES, LOW_DISK_BYTES, Guidance
from houston_shared.safe_text import safe_line
from houston_shared.store import rollout_queries
from houston_shared.store.attention_ranking import RolloutNeed, RolloutOverview
from houston_shared.store.draft_queries import CriticDraft
from houston_shared.store.rollout_queries import RolloutRow
from houston_shared.times_and_counts import format_clock, local_time, pluralize

_SANDBOX_MARKS = {"none": " [no sandbox]", ELSEWHERE: " [sampled elsewhere]"}
STATE_TONES = {"running": "good", "finished": "good", "failed": "bad", "cancelled": "dim"}


MIN_REASON_CHARACTERS = 16
"""Characters of a reason that are shown however narrow the terminal is."""


def drift_words(drift: str) -> str:
    """The class of a prompt, for people: `forked` is also the first one, where nothing forked."""
    return "new context" if drift == "forked" else drift


def drift_counts(counts: Mapping[str, int]) -> str:
    """How many prompts are of each class, for people; `none` without any."""
    words = (
        pluralize(count, drift_words(name)) if name == "forked" else f"{count} {name}"
        for name, count in sorted(counts.items())
    )
    return ", ".join(words) or "none"


def format_score(value: float | None) -> str:
    """A score from 0 to 100 as people read it, four digits of it, or a dash."""
    return "–" if value is None else f"{value:.4g}"


def state_span(rollout: RolloutRow, room: int | None = None, archived: bool = False) -> OutputSpan:
    """A rollout's state, who owns its pause, and whether it ran without a sandbox, was sampled
    elsewhere, or is archived.

    room: characters that it should fit; the reason is cut to that, the rest is always said.
    """
    words = rollout.state
    if rollout.paused_by:
        words += f" by {rollout.paused_by}"
    if (
        rollout.paused_by.startswith("person:")
        and rollout.activity
        and not rollout_queries.is_at_rest(rollout)
    ):
        words += ", still in its step"
    if rollout.cancelling and rollout.state not in ENDED_STATES:
        words += f", being cancelled by {rollout.cancelling}"
    mark = _SANDBOX_MARKS.get(rollout.sandbox, "")
    mark += " [archived]" if archived else ""
    if rollout.reason:
        other_cells = len(words) + len(" ()") + len(mark)
        limit = None if room is None else max(MIN_REASON_CHARACTERS, room - other_cells)
        words += f" ({cut_text(rollout.reason, limit)})"
    return span(words + mark, STATE_TONES.get(rollout.state, ""))


def need_text(need: RolloutNeed) -> str:
    """Why somebody is needed, without what the rollout's state says already."""
    shown_kinds = ("paused", "engine", "host-away", "disk", "waiting", "gpu", "failed")
    return "; ".join(reason.text for reason in need.reasons if reason.kind not in shown_kinds)


def cut_text(text: str, limit: int | None) -> str:
    """Text on one line of at most `limit` characters; it says with … that it was cut."""
    line = safe_line(text)
    return line if limit is None or len(line) <= limit else f"{line[: limit - 1]}…"


def format_local_time(iso: str) -> str:
    """A stored time (ISO 8601, UTC) in local time with its offset."""
    return local_time(int(datetime.fromisoformat(iso).timestamp() * 1_000_000))


def print_guidance(page: OutputPage, guidance: Guidance) -> None:
    """One piece of guidance and where it stands."""
    state = (
        f"delivered at step {guidance.step}" if guidance.state == "delivered" else guidance.state
    )
    author = guidance.author if guidance.verified else f"{guidance.author} (unverified)"
    facts = [format_local_time(guidance.queued_at), author, guidance.mode, state]
    if guidance.critic:
        facts.append(f"drafted by {guidance.critic}")
    if guidance.revision > 1:
        facts.append(f"revision {guidance.revision}")
    page.line(span(guidance.id, "name"), span("  " + " · ".join(facts), "dim"))
    page.block(guidance.text, "  ", "person")


def print_draft(page: OutputPage, draft: CriticDraft) -> None:
    """One draft of a critic and what became of it."""
    state = f"{draft.state} by {draft.by}" if draft.by else draft.state
    facts = [format_local_time(draft.at), draft.critic, f"after step {draft.step}", state]
    page.line(span(draft.id, "name"), span("  " + " · ".join(facts), "dim"))
    page.block(draft.text, "  ", "person")
    if draft.reason:
        page.block(f"why: {draft.reason}", "  ", "dim")


def apply_full_disk(rollouts: list[RolloutRow], home: Home) -> list[RolloutRow]:
    """Rollouts as they are now: on a full disk, those that a daemon would run are paused by it."""
    room = shutil.disk_usage(home.path)
    if not room.total or room.free >= LOW_DISK_BYTES or home_lock.find_running_daemon(home) is None:
        return rollouts
    reason = f"{room.free // 1_000_000} MB free on the disk of the home"
    return [
        replace(rollout, state="paused", paused_by="disk", reason=reason)
        if _is_unpaused(rollout)
        else rollout
        for rollout in rollouts
    ]


def apply_resource_waits(rollouts: list[RolloutRow], home: Home) -> list[RolloutRow]:
    """Rollouts with what they wait for, where that is a GPU, a node of a cluster, an engine or a
    worker that a paused one holds: a queued one has it as its reason."""
    if not any(map(_is_unpaused, rollouts)):
        return rollouts
    gpus = gpu_leases.read_gpu_ledger(home).waiting
    nodes = node_places.read_node_places(home).waiting
    waits = worker_waits.read_worker_waits(home)
    return [
        _with_wait(
            rollout,
            gpus.get(f"rollout:{rollout.id}")
            or nodes.get(rollout.id)
            or _worker_wait(rollout, waits),
        )
        for rollout in rollouts
    ]


def _worker_wait(rollout: RolloutRow, waits: worker_waits.WorkerWaits) -> str:
    waiting = rollout.state == "queued" and not rollout.reason
    return waits.reason(rollout_queries.sampling_engines(rollout)) if waiting else ""


def _is_unpaused(rollout: RolloutRow) -> bool:
    return rollout.state in ("queued", "running")


def _with_wait(rollout: RolloutRow, reason: str) -> RolloutRow:
    if not reason or not _is_unpaused(rollout):
        return rollout
    if rollout.state == "queued":
        return replace(rollout, reason=reason)
    return replace(rollout, activity=reason)


def apply_current_conditions(
    overviews: Sequence[RolloutOverview], home: Home
) -> list[RolloutOverview]:
    """With what waits for a GPU, a node or a worker, or for room on the disk."""
    rows = [overview.rollout for overview in overviews]
    now = apply_resource_waits(apply_full_disk(rows, home), home)
    return [overview._replace(rollout=row) for overview, row in zip(overviews, now, strict=True)]


MAX_REASON_CHARACTERS = 60
"""Characters of a reason where there is no terminal whose width would decide; --json has all."""
MAX_CELL_CHARACTERS = 40
"""Characters of other words."""
MIN_NEED_CHARACTERS = 16
"""Characters of the need that a narrow terminal leaves; a column goes before it has fewer."""
HIDDEN_WHEN_EMPTY = ("new#", "people", "doing", "need")
"""Columns that are left out where they are empty."""
DROP_ORDER = ("doing", "task", "active#", "last#", "new#", "people", "best#", "steps#")
"""In this order columns go where the terminal is narrow."""

TableColumns = dict[str, list[OutputSpan]]


def print_rollout_table(
    page: OutputPage, needs: Sequence[RolloutNeed], archives: dict[str, str], by_task: bool
) -> None:
    """Print them; archives: where archived ones lie. by_task: the task is said above the table."""
    columns = _table_columns(needs)
    left_out = {
        title for title in HIDDEN_WHEN_EMPTY if not any(cell.text for cell in columns[title])
    }
    left_out |= {"task"} if by_task else set()
    columns = {title: cells for title, cells in columns.items() if title not in left_out}
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if width is not None:
        states = [_state_cell(need, 0, archives) for need in needs]
        columns = _columns_that_fit(columns, width - max(len(state.text) for state in states))
    room = None if width is None else width - _columns_width(columns)
    columns["state"] = [_state_cell(need, room, archives) for need in needs]
    page.table(tuple(columns), list(zip(*columns.values(), strict=True)))


def print_rollouts_by_task(
    page: OutputPage, needs: Sequence[RolloutNeed], archives: dict[str, str], fold: bool
) -> None:
    """Print a table for each task, in the order of their first rollouts; numbered tasks, as in a
    suite, share one. fold: ended rollouts that need nobody become one line after their table.
    """
    stems = Counter(map(_task_stem, {need.overview.rollout.task for need in needs}))
    by_title: dict[str, list[RolloutNeed]] = {}
    for need in needs:
        task = need.overview.rollout.task
        title = task if stems[_task_stem(task)] == 1 else f"{_task_stem(task)}*"
        by_title.setdefault(title, []).append(need)
    for number, (title, listed) in enumerate(by_title.items()):
        tasks = len({need.overview.rollout.task for need in listed})
        about = f" ({tasks} tasks)" if tasks > 1 else ""
        page.line("\n" if number else "", span(title, "name"), span(about, "dim"))
        ended = [need for need in listed if fold and is_settled(need)]
        folded = len(ended) > 1
        if unfolded_needs := [need for need in listed if not (folded and is_settled(need))]:
            print_rollout_table(page, unfolded_needs, archives, by_task=tasks == 1)
        if folded:
            page.line(span(_ended_text(ended), "dim"))


def _task_stem(task: str) -> str:
    """A task's name without the number that it ends in: `word-worlds-1-test-17` is one of many."""
    return task.rstrip("0123456789") if "-" in task else task


def is_settled(need: RolloutNeed) -> bool:
    """Whether a rollout has ended and asks for nobody."""
    return need.overview.rollout.state in ENDED_STATES and not need.weight


def _ended_text(ended: Sequence[RolloutNeed]) -> str:
    """How many there are, and how they did."""
    rollouts = [need.overview.rollout for need in ended]
    tasks = len({rollout.task for rollout in rollouts})
    of_tasks = f" of {tasks} tasks" if tasks > 1 else ""
    text = f"{len(ended)} rollouts{of_tasks} have ended and need nobody"
    scores = [rollout.best_score for rollout in rollouts if rollout.best_score is not None]
    if not scores:
        return text
    mean = format_score(sum(scores) / len(scores))
    return f"{text}: best score {format_score(max(scores))}, mean {mean}"


def _table_columns(needs: Sequence[RolloutNeed]) -> TableColumns:
    rows = [_table_row(need) for need in needs]
    return {title: [row[title] for row in rows] for title in rows[0]}


def _table_row(need: RolloutNeed) -> dict[str, OutputSpan]:
    overview, rollout = need.overview, need.overview.rollout
    holder = overview.holding.holder if overview.holding else ""
    people = [f"{holder} holds it"] if holder else []
    people += [look.name for look in overview.viewers]
    doing = "" if rollout_queries.is_at_rest(rollout) else rollout.activity
    branch = f" (branch of {rollout.parent} at {rollout.parent_step})" if rollout.parent else ""
    return {
        "rollout": span(rollout.id, "name"),
        "task": span(f"{rollout.task}{branch}"),
        "steps#": span(rollout.steps),
        "new#": span("" if overview.new_steps is None else f"+{overview.new_steps}"),
        "best#": span(format_score(rollout.best_score)),
        "last#": span(format_score(rollout.last_score)),
        "active#": span(format_clock(rollout.active_us / 1_000_000)),
        "need": span(cut_text(need_text(need), MAX_CELL_CHARACTERS), "bad"),
        "people": span(cut_text(", ".join(people), MAX_CELL_CHARACTERS), "person"),
        "doing": span(cut_text(doing, MAX_CELL_CHARACTERS)),
    }


def _columns_that_fit(columns: TableColumns, width: int) -> TableColumns:
    """The columns that a width has room for, all of whose rows are one line."""
    for title in (*DROP_ORDER, ""):
        over = _columns_width(columns) - width
        needs = columns.get("need", [])
        longest = max((len(cell.text) for cell in needs), default=0)
        if over <= 0:
            break
        if needs and (longest - over >= min(MIN_NEED_CHARACTERS, longest) or not title):
            room = max(MIN_NEED_CHARACTERS, longest - over)
            cut = [span(cut_text(need.text, room), need.tone) for need in needs]
            return {**columns, "need": cut}
        columns = {name: cells for name, cells in columns.items() if name != title}
    return columns


def _columns_width(columns: TableColumns) -> int:
    """How wide they are, with what is between them and the next."""
    widths = OutputPage.widths(tuple(columns), list(zip(*columns.values(), strict=True)))
    return sum(width + COLUMN_GAP for width in widths)


def _state_cell(need: RolloutNeed, room: int | None, archives: dict[str, str]) -> OutputSpan:
    """How it stands; on a terminal all of it fits the line, elsewhere the reason is short."""
    rollout: RolloutRow = need.overview.rollout
    if room is None:
        rollout = replace(rollout, reason=cut_text(rollout.reason, MAX_REASON_CHARACTERS))
    return state_span(rollout, room, rollout.id in archives)
