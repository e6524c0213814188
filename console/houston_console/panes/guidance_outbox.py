"""Guidance messages of the console: drafts, what is unsent, what is queued, and their lines.

`GuidanceOutbox` stores drafts and unsent messages in the user's state folder at every change, so
nothing typed is lost when terminal, console or daemon dies. Also here: the queue as one list,
reads of earlier messages and of what the agent did next, and how each is shown. It sends nothing;
`app.daemon_link` does.
"""

import hashlib
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from platformdirs import user_state_path

from houston_console.commands.rollout_summary import format_score
from houston_console.widgets.styled_text import (
    TextLine,
    TextSpan,
    Tone,
    fit_text,
    gain_tone,
    hanging_block,
    justify_line,
    line,
    line_text,
    span,
    text_block,
)
from houston_shared import atomic_file, guidance_tag
from houston_shared.control_messages import new_guidance_id
from houston_shared.critic_gain import critique_gain, unit_score
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.records import DeliveredGuidance, Guidance, GuidanceMode
from houston_shared.store import annotation_queries, last_actions, rollout_queries
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.last_actions import LastAction
from houston_shared.store.presence_queries import PERSON_NAME_LIMIT

GuidanceState = Literal["unsent", "refused", "queued", "delivered", "withdrawn"]


class GuidanceEntry(NamedTuple):
    """One message in the queue, whether the daemon has it or not."""

    id: str
    state: GuidanceState
    mode: GuidanceMode
    author: str
    text: str
    step: int | None = None
    revision: int = 0
    verified: bool = True
    reason: str = ""
    """Why it was refused."""
    queued_at: str = ""
    """UTC, as in JSON; empty for what is not sent."""
    delivered_at: str = ""
    critic: str = ""
    """That drafted it; empty for the author's own words."""


def merge_guidance_entries(
    stored: Iterable[Guidance], unsent: Iterable[GuidanceEntry]
) -> list[GuidanceEntry]:
    """What was said to a rollout: what is not sent, what waits in the order in which the agent will
    hear it, then the newest of the rest first.

    A message that the daemon has is never shown as unsent, whatever the outbox still holds.
    """
    entries = [
        GuidanceEntry(
            id=message.id,
            state=message.state,
            mode=message.mode,
            author=message.author,
            text=message.text,
            step=message.step,
            revision=message.revision,
            verified=message.verified,
            queued_at=message.queued_at,
            delivered_at=message.delivered_at or "",
            critic=message.critic,
        )
        for message in stored
    ]
    stored_ids = {entry.id for entry in entries}
    local = [entry for entry in unsent if entry.id not in stored_ids]
    waiting = [entry for entry in entries if entry.state == "queued"]
    return local + waiting + [entry for entry in entries[::-1] if entry.state != "queued"]


def move_in_order(
    entries: Iterable[GuidanceEntry], id: str, by: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ids of what waits: as it is, and with `id` so many places later; the same at an end."""
    order = [entry.id for entry in entries if entry.state == "queued"]
    if id not in order:
        return tuple(order), tuple(order)
    at = order.index(id)
    wanted_order = order.copy()
    wanted_order.insert(max(0, min(at + by, len(order) - 1)), wanted_order.pop(at))
    return tuple(order), tuple(wanted_order)


class GuidanceDraft(msgspec.Struct, frozen=True):
    """What stands in the composer for one rollout."""

    rollout: str
    text: str
    edits: str = ""
    """Id of the queued guidance that is being edited; empty for a new message."""
    revision: int = 0
    """Its revision as it was seen."""
    critic_draft: str = ""
    """Id of the critic's draft that it began as; empty for one's own words."""


class UnsentMessage(msgspec.Struct, frozen=True):
    """A message that the daemon has not acknowledged."""

    id: str
    rollout: str
    text: str
    mode: GuidanceMode
    number: int
    """Order of writing, nanoseconds."""
    refused: str = ""
    """The daemon's reason for not taking it; such a message is not sent again by itself."""
    critic_draft: str = ""
    """As of the draft."""


class GuidanceOutbox:
    """Drafts and unsent messages of one person for one home."""

    def __init__(self, home: Home, folder: Path | None = None, claimed: str = "") -> None:
        """folder: where the files are; the user's state folder when None. Raises HoustonError.

        claimed: the name they speak under where several share a login: each has words of their own,
        which nobody else's console takes up or sends under another name.
        """
        self.folder = folder or user_state_path("houston") / "console" / home.key
        name = claimed.strip()[:PERSON_NAME_LIMIT]
        if name:
            self.folder = self.folder / "people" / hashlib.sha256(name.encode()).hexdigest()[:16]
        self._drafts = self.folder / "drafts"
        self._unsent = self.folder / "unsent"
        try:
            for place in (self._drafts, self._unsent):
                place.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as problem:
            raise HoustonError(
                f"The folder {self.folder} for drafts cannot be made: {problem.strerror}.",
                "The console was not opened, because what you type could be lost.",
                "Make it writable, or set XDG_STATE_HOME to a folder of your own.",
            ) from None

    def draft(self, rollout: str) -> GuidanceDraft:
        """The draft for `rollout`; an empty one when there is none."""
        file = self._drafts / _file_name(rollout)
        draft = atomic_file.read_json_file(file, GuidanceDraft, FileNotFoundError)
        return draft or GuidanceDraft(rollout, "")

    def store_draft(self, draft: GuidanceDraft) -> None:
        """Store a draft; an empty one is removed."""
        path = self._drafts / _file_name(draft.rollout)
        if draft.text:
            _write_record(path, draft)
        else:
            path.unlink(missing_ok=True)

    def post(
        self, rollout: str, text: str, mode: GuidanceMode, critic_draft: str = ""
    ) -> UnsentMessage:
        """Keep a message until it is acknowledged; its id is made here, once. Raises OSError.

        critic_draft: id of the one that is said with it.
        """
        message = UnsentMessage(
            new_guidance_id(), rollout, text, mode, time.time_ns(), critic_draft=critic_draft
        )
        _write_record(self._unsent / _file_name(message.id), message)
        return message

    def refuse(self, message: UnsentMessage, reason: str) -> None:
        """The daemon will not take it: keep the words and the reason."""
        _write_record(
            self._unsent / _file_name(message.id), msgspec.structs.replace(message, refused=reason)
        )

    def remove(self, id: str) -> None:
        """Remove a message that was acknowledged or dropped."""
        (self._unsent / _file_name(id)).unlink(missing_ok=True)

    def unsent(self, rollout: str = "") -> list[UnsentMessage]:
        """Messages without an acknowledgement, oldest first; of one rollout when named."""
        records = [
            atomic_file.read_json_file(path, UnsentMessage, FileNotFoundError)
            for path in self._unsent.glob("*.json")
        ]
        messages = [record for record in records if record and rollout in ("", record.rollout)]
        return sorted(messages, key=lambda message: message.number)

    def entries(self, rollout: str, author: str) -> list[GuidanceEntry]:
        """The unsent messages of a rollout as the queue shows them."""
        return [
            GuidanceEntry(
                id=message.id,
                state="refused" if message.refused else "unsent",
                mode=message.mode,
                author=author,
                text=message.text,
                reason=message.refused,
            )
            for message in self.unsent(rollout)
        ]


def _file_name(key: str) -> str:
    """A file name for an id, whatever is in it."""
    return "".join(c if c.isalnum() or c in "-_" else f"%{ord(c):x}" for c in key) + ".json"


def _write_record(path: Path, record: msgspec.Struct) -> None:
    data, temporary_path = msgspec.json.encode(record), atomic_file.temporary_sibling(path)
    atomic_file.write_atomically(path, data, temporary_path=temporary_path, durable=False)


MAX_HISTORY_MESSAGES = 200
"""Messages of a person that the composer walks through."""
FOLLOWING_STEPS = 3
"""Steps after a message that are shown with it."""


class AgentReaction(NamedTuple):
    """What the agent did after it had heard a message."""

    guidance_id: str
    steps: tuple[LastAction, ...]
    before: float | None = None
    """Score when it was heard, 0 to 100; None where nothing was scored yet."""
    after: float | None = None
    """The newest score since; None where nothing was scored since."""


def read_messages_by(author: str) -> ReadPlan[list[str]]:
    """What a person said to any rollout, the newest last."""
    return [
        message.text
        for message in (
            yield from annotation_queries.list_guidance_by_author(author, MAX_HISTORY_MESSAGES)
        )
    ]


def read_agent_reaction(rollout: str, id: str, heard: int) -> ReadPlan[AgentReaction]:
    """The steps after step `heard`, in whose observation the message was."""
    actions: list[LastAction] = []
    for step in range(heard + 1, heard + 1 + FOLLOWING_STEPS):
        acted = yield from last_actions.read_action_of_step(rollout, step)
        if acted is not None:
            actions.append(acted)
    before, after = yield from rollout_queries.scores_around(rollout, heard)
    return AgentReaction(id, tuple(actions), before, after)


GUIDANCE_STATE_GLYPHS: dict[str, tuple[str, Tone]] = {
    "unsent": ("◌", "warning"),
    "refused": ("✗", "error"),
    "queued": ("○", "guidance"),
    "delivered": ("●", "success"),
    "withdrawn": ("⊘", "faint"),
}
"""Glyph and tone of each state of guidance."""
_DELIVERY_MODE_LABELS = {"next": "", "wake": "wake ", "interrupt": "interrupt "}


def guidance_entry_line(entry: GuidanceEntry, width: int) -> TextLine:
    """One message of the queue: state, who, what."""
    glyph, tone = GUIDANCE_STATE_GLYPHS[entry.state]
    state = f"step {entry.step}" if entry.state == "delivered" else entry.state
    author = entry.author if entry.verified else f"{entry.author}?"
    if entry.critic:
        author += f" · {entry.critic}"
    left = line(
        span(f" {glyph} ", tone),
        TextSpan(fit_text(state, 11), tone),
        span(_DELIVERY_MODE_LABELS[entry.mode], "warning"),
        span(f"{author}  ", "key"),
        span(entry.text, "faint" if entry.state == "withdrawn" else "text"),
    )
    right = line(span(f" {entry.reason} ", "error")) if entry.reason else ()
    return justify_line(left, _cut_line(right, width // 2), width)


def delivered_text_lines(
    text: str, width: int, max_lines: int, is_undelivered: bool = False
) -> list[TextLine]:
    """What the agent reads, in `max_lines` lines; how much more there is takes the last of them.

    is_undelivered: it was withdrawn or refused, so that the agent will not.
    """
    mark = span(" never heard " if is_undelivered else " agent reads ", "faint")
    lines = hanging_block(mark, delivered_text(text), width, "guidance_text")
    if len(lines) <= max_lines:
        return lines
    more = span(f"… {len(lines) - max_lines + 1} more lines", "dim")
    return [*lines[: max_lines - 1], line(lines[1][0], more)]


def delivery_lines(
    entry: GuidanceEntry, followed: AgentReaction | None, width: int
) -> list[TextLine]:
    """Who said a message and when, where it was heard, and what the agent did next.

    Of what was refused: why, in full.
    """
    if entry.reason:
        return text_block(entry.reason, width, "error", span("             "))
    if not entry.queued_at:
        return []
    drafted = f", drafted by {entry.critic}," if entry.critic else ""
    text = f"{entry.author}{drafted} said it {format_recent_time(entry.queued_at)}"
    if entry.state == "delivered":
        text += f"; heard at step {entry.step}, {format_recent_time(entry.delivered_at)}"
    parts = [line(span("             "), span(fit_text(text, width - 13), "dim"))]
    if followed is None or followed.guidance_id != entry.id:
        return parts
    for at, acted in enumerate(followed.steps):
        head = span("        then " if not at else "             ", "faint")
        number = span(f"{acted.step:>5} ", "number")
        parts.append(line(head, number, span(fit_text(acted.text, width - 19))))
    if entry.state == "delivered" and not followed.steps:
        parts.append(line(span("        then ", "faint"), span("no step yet", "dim")))
    if followed.after is not None:
        parts.append(line(span("       score ", "faint"), *_gain_spans(followed)))
    return parts


def _gain_spans(followed: AgentReaction) -> TextLine:
    """Scores before and after a message, and what it gained (`critic_gain`)."""
    before, after = followed.before, followed.after or 0.0
    gain = critique_gain(unit_score(before), unit_score(after))
    begin = "none" if before is None else format_score(before)
    gain_span = span(f"gain {gain:+.2f}", gain_tone(gain))
    return line(span(f"{begin} → {format_score(after)}   ", "text"), gain_span)


def format_recent_time(at: str) -> str:
    """A time of JSON as the person's clock shows it, with the day where it is another."""
    when = datetime.fromisoformat(at).astimezone()
    today = when.date() == datetime.now(UTC).astimezone().date()
    return when.strftime("%H:%M" if today else "%d %b %H:%M")


def _cut_line(parts: TextLine, width: int) -> TextLine:
    """At most `width` cells of a line."""
    text = line_text(parts)
    if len(text) <= width or not parts:
        return parts
    return (TextSpan(fit_text(text, width), parts[0].tone),)


def delivered_text(text: str) -> str:
    """The exact text that the agent will see for a message."""
    return guidance_tag.render_guidance([DeliveredGuidance(id="", author="", text=text)]).strip(
        "\n"
    )
