"""People in words: who looks, who looks after it, what they left. Pure."""

import time

from houston_shared.need import Standing
from houston_shared.store.queries.claims import Holding
from houston_shared.store.queries.looking import Look, Seen

DAY_US = 86_400_000_000


def since(at: int, now: int) -> str:
    """A moment in local time: `14:05`, or `Nov 19 14:05` when it was not within a day."""
    form = "%H:%M" if 0 <= now - at < DAY_US else "%b %d %H:%M"
    return time.strftime(form, time.localtime(at / 1e6))


def ago(at: int, now: int) -> str:
    """How long ago, in one unit; no seconds, they would be drawn every second."""
    minutes = max(0, now - at) // 60_000_000
    if minutes < 1:
        return "just now"
    if minutes < 100:
        return f"{minutes} min ago"
    hours = minutes // 60
    return f"{hours} h ago" if hours < 48 else f"{hours // 24} days ago"


def name_of(name: str, verified: bool | int, me: str) -> str:
    """How somebody is called here; with a question mark where only they say so."""
    return "you" if name == me else name if verified else f"{name}?"


def others(found: Standing, me: str) -> list[Look]:
    """Who else looks at a rollout now."""
    return [look for look in found.lookers if look.name != me]


def held(found: Holding | None, me: str, now: int) -> str:
    """Who looks after a rollout since when; empty for nobody."""
    if found is None or not found.holder:
        return ""
    return f"{name_of(found.holder, found.verified, me)} since {since(found.since, now)}"


def left_note(found: Holding | None, me: str) -> Holding | None:
    """A note that waits for whoever comes next: nobody has taken the rollout since, or I have."""
    if found is None or not found.note or found.note_by == me:
        return None
    return found if found.holder in ("", me, found.note_by) else None


def unread(found: Holding | None, seen: Seen | None, me: str) -> Holding | None:
    """A note that this person has not had before their eyes."""
    if found is None or not found.note or found.note_by == me:
        return None
    return found if seen is None or seen.at < found.note_at else None


def who(found: Standing, me: str, now: int) -> list[tuple[str, str]]:
    """Glyph and words: who looks and where, who holds it, what was left."""
    said = [
        ("◉", f"{name_of(look.name, look.verified, me)} at step {look.step}")
        for look in others(found, me)
    ]
    if claim := held(found.holding, me, now):
        mine = found.holding is not None and found.holding.holder == me
        said.append(("☞", f"{claim}, C lets go" if mine else claim))
    if note := left_note(found.holding, me):
        said.append(("✉", f"{note.note_by}, {ago(note.note_at, now)}: {note.note}"))
    return said
