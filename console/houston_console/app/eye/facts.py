"""How a request came about, in a few lines: counts, what is new, what is no longer in it. Pure."""

from collections import Counter
from collections.abc import Iterable

from houston_console.app.drawing.lines import Line, Tone, block, flow, line, span
from houston_console.app.eye.reading import Seen
from houston_shared.records import Message
from houston_shared.store.context import WITHOUT_IDS, ContextView

NO_IDS = "this engine gives no token ids"
_NAMED = 4
"""Cuts that are named one by one."""


def facts(seen: Seen, width: int) -> list[Line]:
    """All that is known of a request but its text; wrapped."""
    found = flow(_origin(seen.view, seen.step), width) + flow(_counts(seen), width)
    found += flow(_changed(seen), width)
    for words in _left_out(seen):
        found += block(words, width, "fork", span(" "))
    note = f"{NO_IDS}; its text is made from the messages" if without(seen.view) else seen.view.note
    return found + (block(note, width, "warning", span(" ")) if note else [])


def without(view: ContextView) -> bool:
    """Whether there are no ids because the engine gives none, not because they were erased."""
    return view.note == WITHOUT_IDS


def _origin(view: ContextView, step: int) -> list[Line]:
    parent = view.parent
    came = f"extends step {parent.step} ({parent.role})" if parent else "extends nothing"
    tone: Tone = "success" if view.drift == "clean" else "warning"
    kept = f", keeps {view.sample.kept:,} of its ids" if parent and view.token_ids else ""
    return [
        line(span(f" step {step} ", "number")),
        line(span(f" {view.drift} ", tone)),
        line(span(f" {came}{kept} ", "dim")),
    ]


def _counts(seen: Seen) -> list[Line]:
    view, sample = seen.view, seen.view.sample
    counts: list[tuple[str, str]] = []
    if sample.prompt_tokens is not None:
        counts.append(("prompt", f"{sample.prompt_tokens:,} tokens"))
    if sample.cached_tokens is not None:
        part = sample.cached_tokens / sample.prompt_tokens if sample.prompt_tokens else 0
        counts.append(("cached", f"{sample.cached_tokens:,}{f' ({part:.0%})' if part else ''}"))
    if view.token_ids is not None:
        counts.append(("ids", f"{len(view.token_ids):,}"))
    counts.append(("text", f"{len(view.rendered):,} characters"))
    roles = Counter(one.role for one in view.messages)
    named = ", ".join(f"{count} {role}" for role, count in roles.items())
    counts.append(("messages", f"{len(view.messages)} ({named})" if named else "0"))
    if view.tools:
        counts.append(("tools", str(len(view.tools))))
    if sample.sampled_ids is not None:
        counts.append(("sampled", f"{sample.sampled_ids:,}"))
    counts += [("ended", sample.finish_reason), ("policy", sample.policy)]
    return [line(span(f" {name} ", "key"), span(f"{value} ")) for name, value in counts if value]


def _changed(seen: Seen) -> list[Line]:
    change = seen.change
    if change is None:
        return [line(span(" the first request of this rollout ", "dim"))]
    new, gone = [one.message for one in change.new], [one.message for one in change.gone]
    found = [
        line(span(f" since step {seen.step - 1} ", "key"), span(f"{_size('+', new)} ", "added")),
    ]
    if gone:
        found.append(line(span(f" {_size('−', gone)} ", "removed")))
    found.append(line(span(f" {change.kept} as before ", "dim")))
    return found


def _size(sign: str, messages: Iterable[Message]) -> str:
    every = list(messages)
    named = "message" if len(every) == 1 else "messages"
    return f"{sign}{len(every)} {named} ({sum(len(one.content) for one in every):,} characters)"


def _left_out(seen: Seen) -> list[str]:
    """What the model no longer reads word for word, or never did."""
    found = [
        f"↳ steps {one.first} to {one.last} are a summary since step {one.before}"
        + (", made without the model" if one.mechanical else "")
        for one in seen.summarised
    ]
    if seen.view.drift == "stripped":
        found.append("✂ thoughts of earlier answers are left out")
    if seen.cuts:
        places = ", ".join(str(one.number) for one in seen.cuts[:_NAMED])
        more = f" and {len(seen.cuts) - _NAMED} more" if len(seen.cuts) > _NAMED else ""
        count = "1 text says" if len(seen.cuts) == 1 else f"{len(seen.cuts)} texts say"
        found.append(f"✂ {count} that something was left out: message {places}{more}")
    return found
