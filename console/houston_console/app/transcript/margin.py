"""What stands beside a step: attention in words, verdicts with reasons, bookmarks and notes.

Pure, like `rows`. Verdicts are told by a glyph and by the letter of their source, not by colour.
"""

from houston_console.app.drawing.lines import Line, Span, Tone, block, line, span
from houston_console.app.transcript.records import Beside, StepRow
from houston_shared.clock import local
from houston_shared.records import ObservationBody
from houston_shared.safe_text import SafeText
from houston_shared.store.queries.verdicts import Given

ATTENTION, BOOKMARK, NOTE = "!", "⚑", "¶"
KEEP, MASK = "✓", "∅"
SOURCES = {"human": "h", "judge": "j", "rule": "r"}
VERDICTS: dict[str, tuple[str, Tone]] = {"keep": (KEEP, "success"), "mask": (MASK, "warning")}
_INDENT = Span(SafeText("   "))


def mark(row: StepRow) -> Span:
    """One column: a note outranks a bookmark, which it may hang on."""
    return span(NOTE if row.noted else BOOKMARK if row.marked else " ", "key")


def verdict(row: StepRow) -> tuple[Span, Span]:
    """Two columns: what counts at the step, and who says so (h person, j judge, r rule)."""
    if not row.verdict:
        return span(" "), span(" ")
    glyph, tone = VERDICTS["keep" if row.verdict.endswith("1") else "mask"]
    return span(glyph, tone), span(SOURCES[row.verdict[:-1]], "dim")


def signals(observation: ObservationBody, width: int) -> list[Line]:
    """The step's attention marks, each with its reason."""
    found: list[Line] = []
    for name in observation.attention:
        why = observation.reasons.get(name, "")
        text = f"{ATTENTION} {name.replace('_', ' ')}" + (f": {why}" if why else "")
        found += block(text, width, "error" if name == "error" else "warning", _INDENT)
    return found


def beside(what: Beside, width: int) -> list[Line]:
    """Verdicts, the one that counts first, then bookmarks and notes with their authors."""
    found: list[Line] = []
    for number, given in enumerate(what.verdicts):
        found += _given(given, number == 0, width)
    noted = {(note.author, note.seq) for note in what.notes}
    for mark in (one for one in what.bookmarks if (one.author, one.seq) not in noted):
        text = f"{BOOKMARK} {mark.author}, {local(mark.at)}"
        found.append(line(_INDENT, span(text, "key")))
    for note in what.notes:
        title = line(_INDENT, span(f"{NOTE} {note.author}, {local(note.at)}", "key"))
        found += [title, *block(note.text, width, "text", span("   │ ", "key"))]
    return found


def _given(given: Given, counts: bool, width: int) -> list[Line]:
    glyph, tone = VERDICTS[given.verdict]
    who = f"{given.by} (person)" if given.source == "human" else given.source
    if given.source != "human" and given.by not in ("", given.source, "rules"):
        who += f" {given.by}"
    why = f": {given.reason}" if given.reason else ", no reason given"
    rest = "" if counts else "  (outranked)"
    return block(f"{glyph} {given.verdict} by {who}{why}{rest}", width, tone if counts else "faint",
                 _INDENT)  # fmt: skip
