"""Why a step is kept or masked, as lines and as JSON: every source, in the order that counts.

It knows what stands and what was said (`queries.verdicts`); it reads nothing itself.
"""

from collections.abc import Sequence
from typing import Any

from houston_console.headless.page import Page, span
from houston_shared import out, rule_reasons
from houston_shared.clock import iso, local
from houston_shared.permalink import Place
from houston_shared.store import told
from houston_shared.store.queries.verdicts import Given, Said

TONES = {"keep": "good", "mask": "bad"}
_WORDS = {"keep": "kept", "mask": "masked"}


def as_json(
    rollout: str, step: int, stands: Sequence[Given], said: Sequence[Said]
) -> dict[str, Any]:
    """One step: the verdict that counts, all that stand, and all that was said of it."""
    given = stands[0] if stands else None
    return {
        "rollout": rollout,
        "step": step,
        "verdict": given.verdict if given else None,
        "source": given.source if given else None,
        "by": given.by if given else None,
        "reason": given.reason if given else "",
        "at": iso(given.at) if given else None,
        "sources": [_source(one) for one in stands],
        "history": [
            {
                "verdict": one.verdict,
                "source": one.source,
                "by": one.by,
                "verified": one.verified,
                "reason": one.reason,
                "at": iso(one.at),
            }
            for one in said
            if one.first <= step <= one.last
        ],
    }


def show(
    page: Page, place: Place, stands: dict[int, list[Given]], said: Sequence[Said], closed: int
) -> None:
    """What stands of the steps of a place, with reasons; and what was said, oldest first.

    closed: steps of the rollout that are over, judged or not.
    """
    if not said and not stands and not place.first:
        next = f"houston verdict {place.rollout} STEP keep|mask"
        out.note(f"No step of {place.rollout} was judged.\n  next: {next}")
        return
    for one in said:
        who = one.by if one.verified else f"{one.by} (unverified)"
        page.line(
            span(f"{local(one.at)} {who} ({one.source})  ", "dim"),
            span(f"{told.steps(one.first, one.last)} ", "name"),
            span(one.verdict, TONES.get(one.verdict, "dim")),
            span(f": {one.reason}" if one.reason else ""),
        )
    if place.first:
        _why(page, place, stands)
        return
    masked = sum(given[0].verdict == "mask" for given in stands.values())
    others = closed - len(stands)
    alone = f"; {told.many(others)} nobody judged" if others > 0 else ""
    page.line(span(f"now {len(stands) - masked} kept, {masked} masked{alone}", "dim"))


def _why(page: Page, place: Place, stands: dict[int, list[Given]]) -> None:
    """By step, what counts and what it outranks; of a range only steps that were judged."""
    several = place.last > place.first
    for step in sorted(stands) if several else [place.first]:
        given = stands.get(step, [])
        how = _WORDS[given[0].verdict] if given else "kept"
        by = f"by {given[0].source}" if given else "it was not judged"
        tone = TONES[given[0].verdict] if given else "dim"
        page.line(span(f"step {step} ", "name"), span(f"is {how}", tone), span(f": {by}"))
        for rank, one in enumerate(given):
            _source_lines(page, one, counts=rank == 0)


def _source_lines(page: Page, one: Given, counts: bool) -> None:
    rules = rule_reasons.split(one.reason)
    why = f": {one.reason}" if one.reason and not rules else ""
    outranked = "" if counts else " (does not count)"
    page.line(
        span(f"  {one.source:<6}"),
        span(one.verdict, TONES[one.verdict] if counts else "dim"),
        span(f" by {one.by}{why}{outranked}"),
        span(f"  {local(one.at)}", "dim"),
    )
    for rule in rules:
        page.line(span(f"         {rule.rule}@{rule.version}", "name"), span(f": {rule.reason}"))


def _source(one: Given) -> dict[str, Any]:
    rules = rule_reasons.split(one.reason) if one.source == "rule" else []
    return {
        "source": one.source,
        "verdict": one.verdict,
        "by": one.by,
        "reason": one.reason,
        "at": iso(one.at),
        "rules": [rule._asdict() for rule in rules],
    }
