"""The eye's texts as lines: messages, the rendered prompt, token ids, what changed. Pure."""

from collections.abc import Sequence

import msgspec

from houston_console.app.drawing.lines import Line, Span, Tone, block, fit, flow, line, span, wrap
from houston_console.app.eye import cached
from houston_console.app.eye.facts import NO_IDS, without
from houston_console.app.eye.reading import Seen
from houston_shared import real_user
from houston_shared.records import Call, Message
from houston_shared.safe_text import SafeText
from houston_shared.store.context import ContextView
from houston_shared.store.context_change import Numbered

IDS_IN_LINE = 12
_ROLES: dict[str, Tone] = {
    "system": "dim",
    "user": "key",
    "assistant": "title",
    "tool": "success",
}
HEARD = ("user", "tool")
"""Roles in which a live tag is the daemon's: a system prompt explains it, models may write it."""
GONE_LINES = 6
"""Lines shown of a message that is no longer there; the step before has it whole."""


def messages(seen: Seen, width: int) -> tuple[list[Line], int]:
    """The messages, each under its role, and the line with the first that is new."""
    view, reach = seen.view, seen.reach
    found, first_new = _offered(view, width), -1
    ends = None
    if reach is not None and reach.characters is not None:
        ends = cached.place(view.rendered, view.messages, reach.characters)
    for index, one in enumerate(view.messages):
        if index + 1 in seen.new and first_new < 0:
            first_new = len(found)
        new = index + 1 in seen.new
        lines = _message(index + 1, one, width, new)
        if reach is not None and ends is not None and ends.number == index:
            place = _line_of(one, ends.offset, width, len(_head(index + 1, one, width, new)))
            lines.insert(place, cached.rule(reach, width))
        found += [*lines, ()]
    return found, first_new if first_new >= 0 else len(found)


def _offered(view: ContextView, width: int) -> list[Line]:
    """Tools that were offered: what they are is part of the rendered text."""
    names = [one.get("function", one).get("name", "?") for one in view.tools]
    if not names:
        return []
    head = line(span("     "), span("tools", "tool"), span(f"  {len(names)} offered", "faint"))
    return [head, *block(", ".join(map(str, names)), width, "dim", span("   │ ", "tool")), ()]


def _line_of(one: Message, offset: int, width: int, head: int) -> int:
    """Which line of a message, whose head has so many, a place in its content is before."""
    if not offset:
        return 0
    before = cached.before_line(one.content, offset)
    above = _content(one, one.content[: before - 1], width) if before else []
    return head + len(above)


def _message(number: int, one: Message, width: int, new: bool) -> list[Line]:
    found = _head(number, one, width, new) + (_content(one, one.content, width))
    for call in one.calls:
        text = _call(call)
        found += [line(span("   → ", "tool"), Span(part, "tool")) for part in wrap(text, width - 5)]
    return found


def _call(call: Call) -> str:
    """A call with its arguments as JSON, as models are given them."""
    return f"{call.name} {msgspec.json.encode(call.arguments).decode()}"


def _head(number: int, one: Message, width: int, new: bool) -> list[Line]:
    size = f"  {len(one.content):,} characters" if one.content else ""
    answers = f" to call {one.call_id}" if one.call_id else ""
    counted = (span(f"{number:>4} ", "number"), span(one.role, _ROLES[one.role]))
    head: list[Line] = [counted, (span(answers, "faint"),), (span(size, "faint"),)]
    return flow([*head, (span("  + new", "added"),)] if new else head, width)


def _content(one: Message, text: str, width: int) -> list[Line]:
    if not text:
        return []
    bar = Span(SafeText("   │ "), _ROLES[one.role])
    return prose(text, width, bar) if one.role in HEARD else block(text, width, "text", bar)


def rendered(seen: Seen, width: int) -> tuple[list[Line], int]:
    """The prompt as text, and its line with the end of what was cached.

    Guidance is told apart only inside the messages that can hold it.
    """
    view, reach = seen.view, seen.reach
    found: list[Line] = []
    ends = -1
    cut = reach.characters if reach and reach.characters is not None else len(view.rendered)
    at = 0
    for start, stop, heard in _stretches(view):
        text = view.rendered[start:stop]
        made = prose(text, width) if heard else block(text, width)
        if reach and ends < 0 and start <= cut < stop:
            before = cached.before_line(text, cut - start)
            part = text[: before - 1] if before else ""
            above = (prose(part, width) if heard else block(part, width)) if part else []
            ends = len(found) + len(above)
            made.insert(len(above), cached.rule(reach, width))
        found += made
        at = stop
    found += _schemas(view, width)
    return found, ends if ends >= 0 else len(found) if at else 0


def _stretches(view: ContextView) -> list[tuple[int, int, bool]]:
    """Start and end of what a person may have said, and of all between."""
    found: list[tuple[int, int, bool]] = []
    at = 0
    for one in view.messages:
        place = view.rendered.find(one.content, at) if one.content else -1
        if place < 0 or one.role not in HEARD:
            at = max(at, place + len(one.content)) if place >= 0 else at
            continue
        start = found[-1][1] if found else 0
        if place > start:
            found.append((start, place, False))
        at = place + len(one.content)
        found.append((place, at, True))
    end = found[-1][1] if found else 0
    return [*found, (end, len(view.rendered), False)] if end < len(view.rendered) else found


def _schemas(view: ContextView, width: int) -> list[Line]:
    """Tools that an engine without ids got beside the messages."""
    if view.token_ids is not None or not view.tools:
        return []
    text = "\n".join(msgspec.json.encode(one).decode() for one in view.tools)
    return [line(span("[tools]", "tool")), *block(text, width, "dim")]


def prose(text: str, width: int, edge: Span | None = None) -> list[Line]:
    """Text that the daemon made, with what stands inside its live guidance tags told apart."""
    found: list[Line] = []
    bar = (edge,) if edge else ()
    rest, inside = text, False
    while rest:
        tag = real_user.CLOSE if inside else real_user.OPEN
        at = rest.find(tag)
        if at < 0:
            part, rest = rest, ""
        elif inside:
            part, rest = rest[: at + len(tag)], rest[at + len(tag) :].removeprefix("\n")
        else:
            part, rest = rest[:at].removesuffix("\n"), rest[at:]
        tone: Tone = "guidance_text" if inside else "text"
        if part:
            found += [(*bar, Span(one, tone)) for one in wrap(part, width - 5)]
        inside = not inside
    return found


class TokenIds(Sequence[Line]):
    """The ids as lines, each made when it is shown; what the parent did not have in full colour."""

    def __init__(self, seen: Seen, width: int) -> None:
        self._ids = seen.view.token_ids or []
        self._kept = seen.view.sample.kept
        self._reach, self._width = seen.reach, width
        self._per_line = max(4, min(IDS_IN_LINE, (width - 10) // 8))
        whole = -(-len(self._ids) // self._per_line)
        self.rule = min(whole, self._reach.tokens // self._per_line) if self._reach else -1
        """The line of the rule; −1 for none. It stands before the line with the first other id."""
        self._count = whole + (self.rule >= 0)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number):  # type: ignore[no-untyped-def]
        if isinstance(number, slice):
            return [self[at] for at in range(*number.indices(self._count))]
        if not 0 <= number < self._count:
            raise IndexError(number)
        if number == self.rule and self._reach:
            return cached.rule(self._reach, self._width)
        start = (number - (0 <= self.rule < number)) * self._per_line
        chunk = self._ids[start : start + self._per_line]
        old = max(0, min(len(chunk), self._kept - start))
        return line(
            Span(fit(f"{start:>8}", 10), "number"),
            span("".join(f"{one:>7} " for one in chunk[:old]), "faint"),
            span("".join(f"{one:>7} " for one in chunk[old:]), "text"),
        )


def token_ids(seen: Seen, width: int) -> tuple[Sequence[Line], int]:
    """The ids, and the line of the first that the parent did not have."""
    view = seen.view
    if view.token_ids is None:
        return block(NO_IDS if without(view) else view.note, width, "warning", span(" ")), 0
    lines = TokenIds(seen, width)
    return lines, len(lines)


def difference(seen: Seen, width: int) -> tuple[list[Line], int]:
    """What the request has that the one before had not, and the other way round."""
    change = seen.change
    if change is None:
        return [line(span(" There is no request before the first.", "dim"))], 0
    found = _heading(f"new: {len(change.new)}", f"{change.kept} messages as before")
    for one in change.new:
        found += [*_message(one.number, one.message, width, True), ()]
    if change.gone:
        found += _heading(f"no longer there: {len(change.gone)}", f"as of step {seen.step - 1}")
        found += [row for one in change.gone for row in _gone(one, width)]
    return found, 0


def _heading(words: str, beside: str) -> list[Line]:
    return [line(span(f" {words}", "strong"), span(f"  {beside}", "dim")), ()]


def _gone(one: Numbered, width: int) -> list[Line]:
    """The beginning of a message, as something that was taken away."""
    message = one.message
    head = line(
        span(f"{one.number:>4} ", "number"),
        span(message.role, _ROLES[message.role]),
        span(f"  {len(message.content):,} characters", "faint"),
        span("  − gone", "removed"),
    )
    text = message.content or ", ".join(_call(call) for call in message.calls)
    rows = block(text[: GONE_LINES * width * 2], width, "dim", span("   − ", "removed"))
    if len(rows) > GONE_LINES:
        rows = [*rows[:GONE_LINES], line(span("     …", "faint"))]
    return [head, *rows, ()]
