"""Two rollouts side by side, as lines. Pure."""

from collections.abc import Sequence

from houston_console.app.compare.plans import Side
from houston_console.app.compare.plot import Series, plot
from houston_console.app.drawing.lines import Line, Span, Tone, block, fit, line, span, width_of
from houston_console.app.rollouts.listing import STATES, cost, duration, standing
from houston_console.headless.spoken import score
from houston_shared.safe_text import SafeText

HOUR_US = 3_600_000_000
GLYPHS: tuple[tuple[str, str, Tone], ...] = (("●", "─", "tool"), ("◆", "┄", "guidance_text"))
"""Of the first and the second: an evaluation, its line, its tone."""
LABEL = 12
GAP = 2


def compared(pair: tuple[Side, Side], me: str, width: int, height: int) -> list[Line]:
    """The plot, the figures beside each other, and what each was told.

    height: lines of the plot.
    """
    found: list[Line] = [(), *plot(_series(pair), _hours(pair), width - 1, height), ()]
    for label, values in _facts(pair, me):
        found += _beside(label, values, width)
    if any(side.heard for side in pair):
        found += [(), line(span(" What each was told", "title"))]
        found += _columns([_told(side, _half(width, 0)) for side in pair], 1, _half(width, 0))
    return found


def _series(pair: Sequence[Side]) -> list[Series]:
    return [
        Series(
            [(one.active_us / HOUR_US, one.score) for one in side.scores],
            glyph,
            held,
            tone,
            [at / HOUR_US for at, _ in side.heard],
        )
        for side, (glyph, held, tone) in zip(pair, GLYPHS, strict=True)
    ]


def _hours(pair: Sequence[Side]) -> float:
    ends = [side.rollout.active_us for side in pair]
    ends += [one.active_us for side in pair for one in side.scores]
    return max(ends) / HOUR_US


def _facts(pair: Sequence[Side], me: str) -> list[tuple[str, list[Line]]]:
    """What is said of both, by its name."""

    def each(name: str, text: str, tone: Tone = "text") -> tuple[str, list[Line]]:
        said = [getattr(side.rollout, text) for side in pair]
        return name, [line(span(str(one), tone)) for one in said]

    return [
        ("", [_head(side, at) for at, side in enumerate(pair)]),
        ("state", [_state(side) for side in pair]),
        ("policy", [line(span(side.rollout.policy or side.rollout.engine)) for side in pair]),
        each("steps", "steps", "number"),
        ("active", [line(span(duration(side.rollout.active_us))) for side in pair]),
        ("score", [_score(side) for side in pair]),
        each("evaluations", "evaluations"),
        each("errors", "errors"),
        each("summarised", "forks"),
        ("guidance", [line(span(_guidance(side))) for side in pair]),
        ("attention", [line(span(_spent(side, me))) for side in pair]),
    ]


def _head(side: Side, at: int) -> Line:
    glyph, _, tone = GLYPHS[at]
    one = side.rollout
    branch = f"  branch of {one.parent} at step {one.parent_step}" if one.parent else ""
    return line(span(f"{glyph} ", tone), span(one.id, "strong"), span(branch, "dim"))


def _state(side: Side) -> Line:
    glyph, tone = STATES.get(side.rollout.state, ("?", "dim"))
    return line(span(f"{glyph} {standing(side.rollout)}", tone))


def _score(side: Side) -> Line:
    one = side.rollout
    said = f"{score(one.best_score)} best, {score(one.last_score)} last"
    return line(span("none", "dim") if one.last_score is None else span(said, "score"))


def _guidance(side: Side) -> str:
    waiting = f", {side.waiting} waiting" if side.waiting else ""
    return f"{len(side.heard)} heard{waiting}"


def _spent(side: Side, me: str) -> str:
    return "; ".join(cost(one, me) for one in side.spent) or "none"


def _half(width: int, label: int) -> int:
    return max(12, (width - 1 - label - GAP) // 2)


def _beside(label: str, values: Sequence[Line], width: int) -> list[Line]:
    """One fact of both; a long one goes on below itself."""
    half = _half(width, LABEL)
    rows = _columns([_wrapped(value, half) for value in values], LABEL + 1, half)
    head = span(fit(f" {label}", LABEL + 1), "key")
    return [(head, *rows[0][1:]), *rows[1:]]


def _wrapped(value: Line, width: int) -> list[Line]:
    if width_of(value) <= width:
        return [value]
    return block("".join(part.text for part in value), width, value[0].tone)


def _columns(both: Sequence[list[Line]], indent: int, half: int) -> list[Line]:
    """Two blocks of lines, the second behind the first."""
    first, second = both
    found: list[Line] = []
    for at in range(max(len(first), len(second))):
        left = first[at] if at < len(first) else ()
        right = second[at] if at < len(second) else ()
        room = max(0, half + GAP - width_of(left))
        found.append((Span(SafeText(" " * indent)), *left, Span(SafeText(" " * room)), *right))
    return found


def _told(side: Side, width: int) -> list[Line]:
    """Guidance that it heard, and how its score stood before and after."""
    found: list[Line] = []
    for at, said in side.heard:
        before = [one.score for one in side.scores if one.active_us <= at]
        after = [one.score for one in side.scores if one.active_us > at]
        was, became = before[-1] if before else None, after[0] if after else None
        then = f"  score {score(was)} → {score(became)}"
        head = line(
            span(f"{said.step:>6} ", "number"), span(said.author, "guidance"), span(then, "score")
        )
        found.append(head)
        found += block(said.text, width - 7, "guidance_text", span(" " * 7))
    return found or [line(span("nothing", "dim"))]
