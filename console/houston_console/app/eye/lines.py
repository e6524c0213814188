"""The eye's three texts as lines: messages, the rendered prompt, token ids. Pure."""

from houston_console.app.drawing.lines import Line, Span, Tone, block, fit, flow, line, span, wrap
from houston_shared import real_user
from houston_shared.records import Message
from houston_shared.safe_text import SafeText
from houston_shared.store.context import WITHOUT_IDS, ContextView

IDS_IN_LINE = 12
_ROLES: dict[str, Tone] = {
    "system": "dim",
    "user": "key",
    "assistant": "title",
    "tool": "success",
}


HEARD = ("user", "tool")
"""Roles in which a live tag is the daemon's: a system prompt explains it, models may write it."""
NO_IDS = "this engine gives no token ids"


def facts(view: ContextView, step: int, width: int) -> list[Line]:
    """How the request came about: drift, parent, counts; wrapped."""
    sample = view.sample
    parent = view.parent
    came = f"extends step {parent.step} ({parent.role})" if parent else "extends nothing"
    tone: Tone = "success" if view.drift == "clean" else "warning"
    with_ids = view.token_ids is not None
    kept = f", keeps {sample.kept:,} of its ids" if parent and with_ids else ""
    first = [
        line(span(f" step {step} ", "number")),
        line(span(f" {view.drift} ", tone)),
        line(span(f" {came}{kept} ", "dim")),
    ]
    counts: list[tuple[str, str]] = []
    if sample.prompt_tokens is not None:
        counts.append(("prompt", f"{sample.prompt_tokens:,} tokens"))
    if sample.cached_tokens is not None:
        counts.append(("cached", f"{sample.cached_tokens:,}"))
    if view.token_ids is not None:
        counts.append(("ids", f"{len(view.token_ids):,}"))
    if sample.sampled_ids is not None:
        counts.append(("sampled", f"{sample.sampled_ids:,}"))
    counts += [("ended", sample.finish_reason), ("messages", str(len(view.messages)))]
    second = [line(span(f" {name} ", "key"), span(f"{value} ")) for name, value in counts if value]
    note = f"{NO_IDS}; its text is made from the messages" if _without(view) else view.note
    found = flow(first, width) + flow(second, width)
    return found + (block(note, width, "warning", span(" ")) if note else [])


def _without(view: ContextView) -> bool:
    """Whether there are no ids because the engine gives none, not because they were erased."""
    return view.note == WITHOUT_IDS


def messages(view: ContextView, width: int) -> list[Line]:
    """The messages, each under its role."""
    found: list[Line] = []
    for number, one in enumerate(view.messages, 1):
        found += [*_message(number, one, width), ()]
    return found


def _message(number: int, one: Message, width: int) -> list[Line]:
    size = f"  {len(one.content):,} characters" if one.content else ""
    tone = _ROLES[one.role]
    answers = f" to call {one.call_id}" if one.call_id else ""
    head = (span(f"{number:>4} ", "number"), span(one.role, tone))
    found = flow([head, (span(answers, "faint"),), (span(size, "faint"),)], width)
    bar = Span(SafeText("   │ "), tone)
    if one.content and one.role in HEARD:
        found += prose(one.content, width, bar)
    elif one.content:
        found += block(one.content, width, "text", bar)
    for call in one.calls:
        text = f"{call.name} {call.arguments}"
        found += [line(span("   → ", "tool"), Span(part, "tool")) for part in wrap(text, width - 5)]
    return found


def rendered(view: ContextView, width: int) -> list[Line]:
    """The prompt as text; guidance is told apart only inside the messages that can hold it."""
    found: list[Line] = []
    at = 0
    for one in view.messages:
        place = view.rendered.find(one.content, at) if one.content else -1
        if place < 0:
            continue
        if one.role in HEARD:
            found += block(view.rendered[at:place], width) if place > at else []
            found += prose(one.content, width)
        else:
            found += block(view.rendered[at : place + len(one.content)], width)
        at = place + len(one.content)
    return found + (block(view.rendered[at:], width) if at < len(view.rendered) else [])


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


def token_ids(view: ContextView, width: int) -> list[Line]:
    """The ids, those that the parent's prompt and sample did not have in full colour."""
    if view.token_ids is None:
        said = NO_IDS if _without(view) else view.note
        return block(said, width, "warning", span(" "))
    per_line = max(4, min(IDS_IN_LINE, (width - 10) // 8))
    found: list[Line] = []
    for start in range(0, len(view.token_ids), per_line):
        chunk = view.token_ids[start : start + per_line]
        old = max(0, min(len(chunk), view.sample.kept - start))
        found.append(
            line(
                Span(fit(f"{start:>8}", 10), "number"),
                span("".join(f"{one:>7} " for one in chunk[:old]), "faint"),
                span("".join(f"{one:>7} " for one in chunk[old:]), "text"),
            )
        )
    return found
