"""Rollouts and guidance as spans: what `guidance` and the lists show to people."""

from datetime import timedelta

from houston_console.headless.page import Page, Span, span
from houston_shared.clock import local
from houston_shared.need import Need
from houston_shared.records import ENDED, Guidance
from houston_shared.safe_text import safe_line
from houston_shared.store.queries import rollouts
from houston_shared.store.queries.rollouts import Rollout

STATE_TONES = {"running": "good", "finished": "good", "failed": "bad", "cancelled": "dim"}


LEAST_REASON = 16
"""Characters of a reason that are shown however narrow the terminal is."""


def duration(seconds: float) -> str:
    """Seconds as h:mm:ss."""
    return str(timedelta(seconds=int(seconds)))


def score(value: float | None) -> str:
    """A score from 0 to 100 as people read it, four digits of it, or a dash."""
    return "–" if value is None else f"{value:.4g}"


def standing(one: Rollout, room: int | None = None, archived: bool = False) -> Span:
    """A rollout's state, who owns its pause, and whether it ran without a sandbox or is archived.

    room: characters that it should fit; the reason is cut to that, the rest is always said.
    """
    said = one.state
    if one.paused_by:
        said += f" by {one.paused_by}"
    if one.paused_by.startswith("person:") and one.activity and not rollouts.stands(one):
        said += ", still in its step"
    if one.cancelling and one.state not in ENDED:
        said += f", being cancelled by {one.cancelling}"
    mark = " [no sandbox]" if one.sandbox == "none" else ""
    mark += " [archived]" if archived else ""
    if one.reason:
        left = (
            None if room is None else max(LEAST_REASON, room - len(said) - len(" ()") - len(mark))
        )
        said += f" ({cut(one.reason, left)})"
    return span(said + mark, STATE_TONES.get(one.state, ""))


def why(need: Need) -> str:
    """Why somebody is needed, without what the rollout's state says already."""
    said = ("paused", "engine", "host-away", "disk", "waiting", "gpu", "failed")
    return "; ".join(one.text for one in need.reasons if one.kind not in said)


def cut(text: str, most: int | None) -> str:
    """Text on one line of at most `most` characters; it says with … that it was cut."""
    line = safe_line(text)
    return line if most is None or len(line) <= most else f"{line[: most - 1]}…"


def local_of(iso: str) -> str:
    """A stored time (ISO 8601, UTC) in local time with its offset."""
    from datetime import datetime

    stamp = datetime.fromisoformat(iso)
    return local(int(stamp.timestamp() * 1_000_000))


def guidance(page: Page, one: Guidance) -> None:
    """One piece of guidance and where it stands."""
    state = f"delivered at step {one.step}" if one.state == "delivered" else one.state
    who = one.author if one.verified else f"{one.author} (unverified)"
    facts = [local_of(one.queued_at), who, one.mode, state]
    if one.revision > 1:
        facts.append(f"revision {one.revision}")
    page.line(span(one.id, "name"), span("  " + " · ".join(facts), "dim"))
    page.block(one.text, "  ", "person")
