"""What stands above the steps: the task, how the rollout did, what people said, and a strip in
which each step is a place that leads to it."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

from houston_console.commands.rollout_page.page_elements import element, extend
from houston_console.commands.rollout_page.score_chart import ChartPoint, score_chart
from houston_console.commands.rollout_page.step_elements import StepView, step_marks
from houston_console.commands.rollout_summary import (
    format_local_time,
    format_score,
)
from houston_shared.records import Guidance
from houston_shared.secret_redaction import redact
from houston_shared.store.rollout_queries import RolloutRow
from houston_shared.times_and_counts import format_clock, local_time, pluralize

MARK_NAMES = {
    "guided": "guided",
    "scored": "scored",
    "failed": "with an error",
    "masked": "masked",
    "attention": "with a signal",
    "marked": "bookmarked",
}
"""Marks of steps that one can narrow the page to, as people read them."""
_TITLE_CHARACTERS = 200
"""Of a message, beside its line in the drawing."""


class StepGlance(NamedTuple):
    """What the header needs of a step, which is not kept whole."""

    step: int
    seconds: float
    marks: Sequence[str]
    said: Sequence[tuple[str, str]]
    """Author and text of what was heard at it."""
    score: float | None

    @classmethod
    def of(cls, view: StepView) -> "StepGlance":
        """Of a step that is put into the page."""
        messages = [(message.author, message.text) for message in view.record.guidance]
        record = view.record
        return cls(record.step, record.active_seconds, step_marks(view), messages, view.score)


def header_element(
    row: RolloutRow,
    instructions: str,
    steps: Sequence[StepGlance],
    guidance: Sequence[Guidance],
    note: str,
) -> Element:
    """All of it. note: of what the page does not have; may be empty."""
    state = element("span", row.state, kind=f"state {row.state}")
    title = element("h1", row.task, " ", state)
    node = element("header", element("p", "Houston · rollout ", element("code", row.id)), title)
    parts = [
        element("p", row.reason, kind="reason") if row.reason else None,
        _facts(row, steps),
        element("p", note, kind="remark warn") if note else None,
        _instructions(instructions),
        score_chart(_points(steps), row.active_us / 1e6),
        _messages_section(guidance),
        _strip(steps),
    ]
    return extend(node, parts)


def toolbar_element(steps: Sequence[StepGlance]) -> Element:
    """Filter, marks to narrow to, and what opens everything."""
    bar = element("nav", kind="toolbar")
    bar.append(
        element("input", type="search", id="filter", placeholder="Filter steps", autocomplete="off")
    )
    present_marks = {mark for glance in steps for mark in glance.marks}
    for mark, name in MARK_NAMES.items():
        if mark in present_marks:
            count = sum(mark in glance.marks for glance in steps)
            attributes = {"type": "button", "data_mark": mark, "aria_pressed": "false"}
            bar.append(element("button", f"{name} {count}", kind=f"narrow {mark}", **attributes))
    bar.append(element("span", pluralize(len(steps), "step"), id="shown"))
    bar.append(element("button", "Open all", type="button", id="open-all"))
    return bar


def _facts(row: RolloutRow, steps: Sequence[StepGlance]) -> Element:
    message_count = sum(len(glance.said) for glance in steps)
    values = {
        "Best score": format_score(row.best_score),
        "Last score": format_score(row.last_score),
        "Steps": f"{row.steps:,}",
        "Errors": f"{row.errors:,}",
        "Active": format_clock(row.active_us / 1e6),
        "Heard": pluralize(message_count, "message"),
        "Policy": row.policy or "base model",
        "Engine": row.engine,
        "Started": local_time(row.created_at)[:16],
    }
    if row.parent:
        values["Branch"] = f"of {row.parent} at step {row.parent_step}"
    if row.best_score is None:
        del values["Best score"], values["Last score"]
    node = element("dl", kind="facts")
    for name, value in values.items():
        node.append(element("div", element("dt", name), element("dd", value)))
    return node


def _instructions(text: str) -> Element | None:
    if not text.strip():
        return None
    return element(
        "details", element("summary", "The task"), element("pre", text.strip()), kind="task"
    )


def _points(steps: Iterable[StepGlance]) -> list[ChartPoint]:
    points = []
    for glance in steps:
        for author, text in glance.said:
            title = f"{author} at step {glance.step}: {redact(text)[:_TITLE_CHARACTERS]}"
            points.append(ChartPoint(glance.step, glance.seconds, None, title))
        if glance.score is not None:
            title = f"{format_score(glance.score)} at step {glance.step}"
            points.append(ChartPoint(glance.step, glance.seconds, glance.score, title))
    return points


def _messages_section(guidance: Sequence[Guidance]) -> Element | None:
    """Every message, also those that were not heard."""
    if not guidance:
        return None
    rows = element("ol", kind="said")
    for message in guidance:
        place = (
            element("a", f"step {message.step}", href=f"#step-{message.step}")
            if message.step is not None
            else element("span", message.state, kind="none")
        )
        author = element("span", message.author, kind="author")
        text = element("span", message.text, kind="words")
        rows.append(element("li", author, place, text, title=format_local_time(message.queued_at)))
    return element("section", element("h2", "What people said"), rows)


def _strip(steps: Sequence[StepGlance]) -> Element:
    strip = element("nav", kind="strip", aria_label="Steps")
    for glance in steps:
        words = ", ".join([f"step {glance.step}", *glance.marks])
        place = element("a", kind=" ".join(glance.marks), href=f"#step-{glance.step}", title=words)
        strip.append(place)
    return strip
