"""One widget a step, as most agents' consoles are built: `collapsible.py TRAJECTORY.json`.

Textual's own Collapsible in a VerticalScroll, nothing else; `j` and `k` the next step and the one
before, `m` the middle, `e` the end, `a` one more step. It runs in the peers' environment and
imports nothing of Houston.
"""

import json
import sys
from pathlib import Path

from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Collapsible, Static


class OneEach(App[None]):
    """All steps of a file."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS = [
        ("j", "move(1)"), ("k", "move(-1)"), ("m", "go"), ("e", "last"), ("a", "add"),
    ]  # fmt: skip

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.animation_level = "none"
        messages = json.loads(file.read_text())["messages"][1:]
        pairs = zip(messages[::2], messages[1::2], strict=True)
        self.steps = [(said["content"], seen["content"]) for said, seen in pairs]
        self.at = 0

    def compose(self) -> ComposeResult:
        """A widget a step, and where the cursor is."""
        with VerticalScroll(id="all"):
            for step in self.steps:
                yield one(*step)
        yield Static(id="place")

    def on_mount(self) -> None:
        """Begin at the newest, as Houston does."""
        self.query_one("#all").styles.height = "1fr"
        self.call_after_refresh(self.action_last)

    def _stand(self, at: int) -> None:
        children = self.query_one("#all").children
        self.at = max(0, min(at, len(children) - 1))
        self.query_one("#all").scroll_to_widget(children[self.at], animate=False)
        self.query_one("#place", Static).update(f"step {self.at + 1} of {len(children)}")

    def action_move(self, by: int) -> None:
        """A step on or back."""
        self._stand(self.at + by)

    def action_go(self) -> None:
        """The middle."""
        self._stand(len(self.steps) // 2)

    def action_last(self) -> None:
        """The newest."""
        self._stand(len(self.query_one("#all").children))

    async def action_add(self) -> None:
        """One more step, shown."""
        await self.query_one("#all").mount(one(*self.steps[-1]))
        self.call_after_refresh(self.action_last)


def one(thought: str, output: str) -> Collapsible:
    """A folded step."""
    return Collapsible(Static(output, markup=False), title=thought.partition("\n")[0])


if __name__ == "__main__":
    OneEach(Path(sys.argv[1])).run()
