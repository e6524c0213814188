"""Which areas a rollout is shown in, and which of them a widget is part of."""

from textual.widget import Widget

from houston_console.app.keys import Area
from houston_console.app.speaking.composer import Composer
from houston_console.app.speaking.queue import Queue

AREAS: tuple[Area, ...] = ("rollouts", "trajectory", "terminals", "files", "composer", "queue")
"""In the order of the keys that go through them."""


def area_of(widget: Widget) -> Area | None:
    """The area that a widget belongs to."""
    for node in widget.ancestors_with_self:
        if isinstance(node, Composer):
            return "composer"
        if isinstance(node, Queue):
            return "queue"
        if node.id in AREAS:
            found: Area = node.id
            return found
    return None
