"""The screen of engines, machines and queues: what there is, what runs where, and what waits.

It shows the lines of `houston daemon status` and asks the daemon for them repeatedly while it is
open. Without a daemon it says so, and shows what the home knows of rollouts that wait for a node.
"""

from collections.abc import Sequence
from functools import partial

from textual.app import ComposeResult
from textual.containers import Container

from houston_console.app.console_state import ConsoleState
from houston_console.app.daemon_link import DaemonLink
from houston_console.app.key_bindings import Area, bindings_for
from houston_console.screens.base_screen import HoustonScreen
from houston_console.widgets.line_view import FixedLines, set_frame_title
from houston_console.widgets.styled_text import (
    LOADING_LINE,
    TextLine,
    hanging_block,
    line,
    span,
    text_block,
)
from houston_shared.control_messages import Status
from houston_shared.daemon_status_text import StatusLine, status_lines, title_words
from houston_shared.errors import HoustonError
from houston_shared.node_places import read_node_places
from houston_shared.store import rollout_queries
from houston_shared.store.async_reader import AsyncReader
from houston_shared.wire import AskStatus

POLL_SECONDS = 2.0
"""How often the daemon is asked while the screen is seen."""
PATIENCE_SECONDS = 2.0
LABEL_CELLS = 12


def resource_lines(title: str, lines: Sequence[StatusLine], width: int) -> list[TextLine]:
    """Lines behind their labels, wrapped under themselves; a label stands once for its group."""
    rows = [*text_block(title, width, "dim", span(" ")), line()]
    before = ""
    for each in lines:
        label = "" if each.label == before else each.label
        before = each.label
        head = span(f" {label:<{LABEL_CELLS - 1}}", "title")
        rows += hanging_block(head, each.words, width, "error" if each.bad else "text")
    return rows


class ResourcesScreen(HoustonScreen):
    """One list of lines to read."""

    BINDINGS = bindings_for("resources")
    area: Area = "resources"

    def __init__(self, state: ConsoleState, reader: AsyncReader, link: DaemonLink, home: str):
        """reader: one that no key waits for."""
        super().__init__(state, home)
        self.text = FixedLines([LOADING_LINE], id="resource-lines")
        self._reader, self._link = reader, link

    def compose_body(self) -> ComposeResult:
        """Compose the frame and its lines."""
        with Container(id="resources"):
            yield self.text

    def on_mount(self) -> None:
        """Ask at once, and again and again."""
        set_frame_title(self.query_one("#resources"), "Engines, machines, and what waits")
        self.hints.show_area("resources")
        self.set_focus(self.text)
        self.set_interval(POLL_SECONDS, self._refresh)
        self._refresh()

    async def refresh_from_state(self, changed: bool) -> None:
        """The daemon is asked by time: most of what stands here is in no commit."""

    def _refresh(self) -> None:
        if self.is_current:
            self.run_latest(self._read, "resources")

    async def _read(self) -> None:
        try:
            status = await self._link.ask(AskStatus(claimed=self._link.claimed), PATIENCE_SECONDS)
            waiting = await self._reader.run(rollout_queries.list_engines_waited_for())
        except HoustonError as problem:
            self._show_without_daemon(problem)
            return
        assert isinstance(status, Status)
        lines = list(status_lines(status, waiting))
        self.text.show_lines(partial(resource_lines, title_words(status), lines))

    def _show_without_daemon(self, problem: HoustonError) -> None:
        places = read_node_places(self._link.home)
        lines = [StatusLine("waits", f"{name}: {why}") for name, why in places.waiting.items()]
        lines += [StatusLine("ran", f"{name}: {at.words}") for name, at in places.last.items()]
        title = f"{problem.cause} {problem.next}".strip()
        self.text.show_lines(partial(resource_lines, title, lines))
