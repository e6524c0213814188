"""What an unsound event means for its rollout: the last step that is sound, and what follows it.

A rollout that has ended loses the event alone. One that goes on must go on from what is certain:
its steps behind the last sound one are set aside with it. What people said stays, and is delivered
again with the next observation.
"""

from dataclasses import dataclass, field

from houston_daemon.recorder.upkeep.judge import Judged
from houston_shared.records import ENDED
from houston_shared.store.bodies import ASIDE

WORK = frozenset({"head", "sample", "intent", "result", "observation", "delivery", "fork"})
"""Kinds that make up the steps of a rollout."""
HARMLESS = frozenset(
    {"assigned", "state", "clock", "cancel", "bookmark", "withdraw", "cleaned"}
    | {"reorder", "verdict", "claim"}
)
"""Kinds whose loss changes no step."""


@dataclass(slots=True)
class Fate:
    """One rollout."""

    state: str = "queued"
    closed: list[tuple[int, int]] = field(default_factory=list)
    """(seq, step) of its sound observations."""
    first_bad: int = 0
    bad_step: int = 2**62
    """The first step that an unsound event belonged to."""
    spec: bool = False
    """Whether what it was started with is there."""
    rewinds: bool = False
    gap: int = 0
    """The first event that stays aside from an earlier repair."""
    back: bool = False
    """Whether work that such a repair had set aside came back."""
    known: bool = False
    """Whether any sound event is its own: else its name is part of the damage."""

    @property
    def ended(self) -> bool:
        """Whether nothing goes on in it."""
        return self.state in ENDED

    @property
    def last_step(self) -> int:
        """The last step that is closed and followed nothing unsound."""
        end = self.first_bad or (self.gap if self.back else 0) or 2**62
        sound = [step for seq, step in self.closed if seq < end and step < self.bad_step]
        return max(sound, default=0)


class Fates:
    """All rollouts of one journal; `see` every event in order, then ask."""

    def __init__(self) -> None:
        self.of: dict[str, Fate] = {}
        self.everybody = 0
        """The first event that is lost and may have been anybody's; 0 for none."""

    def see(self, judged: Judged, owner: str, state: str) -> None:
        """Take note of one event. owner: its rollout; state: what a `state` event moved to."""
        row = judged.row
        if not judged.why:
            assert row is not None
            if owner:
                fate = self.of.setdefault(owner, Fate())
                self._sound(fate, judged.seq, row[5], row[2], state)
                fate.back |= judged.back and row[5] in WORK
            return
        kind = str(row[5]) if row is not None else ""
        if row is not None and (not owner or kind == ASIDE):
            return
        if not owner:
            self.everybody = self.everybody or judged.seq
            return
        fate = self.of.setdefault(owner, Fate())
        fate.first_bad = fate.first_bad or judged.seq
        if kind not in HARMLESS:
            fate.rewinds = True
            if row is not None and kind in WORK and isinstance(row[2], int):
                fate.bad_step = min(fate.bad_step, row[2])

    def settle(self) -> None:
        """An event that may have been anybody's was everybody's who had not ended."""
        for fate in self.of.values():
            if not fate.known:
                self.everybody = min(self.everybody or fate.first_bad, fate.first_bad)
        for fate in self.of.values():
            if self.everybody and not fate.ended and fate.spec:
                fate.first_bad = min(fate.first_bad or self.everybody, self.everybody)
                fate.rewinds = True

    def aside(self, judged: Judged, owner: str) -> str:
        """Why a sound event is set aside all the same; empty when it stays."""
        fate, row = self.of.get(owner), judged.row
        if fate is None or row is None or row[5] == ASIDE:
            return ""
        kind, step = row[5], row[2]
        if judged.back and kind in WORK and not fate.ended and 0 < fate.gap < judged.seq:
            return f"it follows event {fate.gap}, which no backup gave back"
        if not fate.first_bad:
            return ""
        if not fate.spec and fate.known:
            return "what its rollout was started with is lost"
        stays = fate.ended or not fate.rewinds or kind not in WORK or step <= fate.last_step
        return "" if stays else f"it follows event {fate.first_bad}, which is unsound"

    def _sound(self, fate: Fate, seq: int, kind: str, step: int, state: str) -> None:
        fate.known = True
        if kind == ASIDE:
            fate.gap = fate.gap or seq
        elif kind == "spec":
            fate.spec = True
        elif kind == "observation":
            fate.closed.append((seq, step))
        elif state:
            fate.state = state
