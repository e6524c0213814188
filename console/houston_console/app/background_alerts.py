"""Reports rollouts that begin to need a person while the console is in the background.

Terminals report, where they can, when they lose and regain the focus. Without the focus, every
urgent reason that is new is reported once; reasons that held when the person left, or that were
reported before, are not. `terminal_driver` notifies the terminal; the daemon's `[notify]` reaches
people who have no console open.
"""

from houston_console.app.console_state import NeedsBoard
from houston_console.commands.rollout_summary import cut_text
from houston_console.screens.rollout_lists import URGENT_WEIGHT
from houston_shared.config import LoadedConfiguration

ALERT_CHARACTERS = 120
"""Characters of an alert; more is cut by notifications anyway."""


class BackgroundAlerts:
    """What was told already, for one console."""

    def __init__(self, loaded: LoadedConfiguration) -> None:
        self._loaded = loaded
        self._known: set[tuple[str, str]] | None = None
        """Rollout and reason of what held at the last look; None before the first."""

    def new_needs(self, board: NeedsBoard, has_focus: bool) -> str:
        """What is to be told now, one line; empty for nothing. board: as it was read just now."""
        urgent = {
            (need.overview.rollout.id, reason.kind): reason.text
            for need in board.needs
            for reason in need.reasons
            if reason.weight >= URGENT_WEIGHT
        }
        known_reasons, self._known = self._known, set(urgent)
        if known_reasons is None or has_focus or not self._loaded.config.console.bell:
            return ""
        self._known |= known_reasons  # a reason that flickers is told once while nobody looks
        new = [f"{key[0]}: {text}" for key, text in urgent.items() if key not in known_reasons]
        count = f"{len(new)} need you, first " if len(new) > 1 else ""
        return cut_text(f"{count}{new[0]}", ALERT_CHARACTERS) if new else ""
