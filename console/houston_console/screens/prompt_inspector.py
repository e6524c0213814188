"""The prompt inspector: exactly what the model was given at a step.

A screen with tabs for messages, rendered text, token ids and the difference to the request
before, with search in the text. Requests are read and wrapped in the background, so no key waits
for 100,000 tokens. Rendering is in `screens.prompt_rendering`.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from houston_console.app.console_state import ConsoleState
from houston_console.app.key_bindings import Area, bindings_for
from houston_console.screens import prompt_rendering
from houston_console.screens.base_screen import GoToStep, HoustonScreen, post_message_as
from houston_console.screens.prompt_rendering import InspectedRequest, request_facts
from houston_console.transcript.trajectory_reader import RolloutSource
from houston_console.widgets.dialogs import BottomPrompt
from houston_console.widgets.line_view import (
    FixedLines,
    highlight_needles,
    set_frame_subtitle,
    set_frame_title,
)
from houston_console.widgets.styled_text import TextLine, line, line_text
from houston_shared import context_messages
from houston_shared.errors import HoustonError
from houston_shared.store.step_context import ContextView

EDGE_BARS = ("│ ", "+ ", "− ", "→ ")
"""How a span ends that is the edge of a line and none of its text."""


class LongText(FixedLines):
    """Lines, and where in them something is."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.copy = ("the whole text", "")
        """What a key copies."""
        self.needle = ""
        self.hits: list[int] = []
        """Numbers of lines in which the needle begins."""

    async def text_to_copy(self) -> tuple[str, str]:
        """The whole, as it is and not as it is wrapped here."""
        return self.copy

    def render_line(self, y: int) -> Strip:
        """One line of the screen, with what was found marked."""
        strip = super().render_line(y)
        if self.needle:
            return highlight_needles(strip, strip.text, [self.needle], self.palette.hit)
        return strip

    def show_text(self, lines: Sequence[TextLine], hits: list[int], at: int) -> None:
        """Show other lines, with the line `at` at the top."""
        self.hits = hits
        self._make = lambda width: lines
        self.show()
        self.jump(at)

    def next_hit(self, by: int) -> int:
        """Show the next line with a hit, or the one before, round the end; its place from 1."""
        top = round(self.scroll_y)
        at = bisect_right(self.hits, top) if by > 0 else bisect_left(self.hits, top) - 1
        at %= len(self.hits)
        self.jump(self.hits[at])
        return at + 1


def lines_with_needle(lines: Sequence[TextLine], needle: str) -> list[int]:
    """Lines in which `needle` begins, in any case; also where it goes on in the next line."""
    needle_text = " ".join(needle.casefold().split())
    if not needle_text:
        return []
    texts = [_text_without_edge(row) for row in lines]
    starts, at = [], 0
    for text in texts:
        starts.append(at)
        at += len(text) + 1
    whole_text = " ".join(texts)
    numbers: list[int] = []
    place = whole_text.find(needle_text)
    while place >= 0:
        number = bisect_right(starts, place) - 1
        if not numbers or numbers[-1] != number:
            numbers.append(number)
        place = whole_text.find(needle_text, place + 1)
    return numbers


def _text_without_edge(parts: TextLine) -> str:
    """What a line says, without its edge."""
    edge = len(parts) > 1 and parts[0].text.endswith(EDGE_BARS)
    return line_text(parts[1:] if edge else parts).strip().casefold()


LineMaker = Callable[[InspectedRequest, int], tuple[Sequence[TextLine], int]]
"""Lines for a width, and the line to begin at."""


class InspectorTab(NamedTuple):
    """One way to read a request."""

    name: str
    make: LineMaker


INSPECTOR_TABS = (
    InspectorTab("messages", prompt_rendering.message_lines),
    InspectorTab("rendered", prompt_rendering.rendered_prompt_lines),
    InspectorTab("token ids", prompt_rendering.token_id_lines),
    InspectorTab("difference", prompt_rendering.difference_lines),
)


class FindPrompt(BottomPrompt):
    """The line for words to look for."""

    def action_leave(self) -> None:
        """Back to the text."""
        self.display = False
        self.screen.set_focus(self.screen.query_one("#inspector-text"))


class PromptInspector(HoustonScreen):
    """One request, and from there the next or the one before."""

    BINDINGS = bindings_for("prompt")
    area: Area = "prompt"

    def __init__(
        self, state: ConsoleState, home: str, source: RolloutSource, step: int, back: Widget
    ) -> None:
        """back: what shows a step when it is told to."""
        super().__init__(state, home)
        self._source, self._step_viewer = source, back
        self.step, self.tab = step, 0
        self.request: InspectedRequest | None = None
        self.facts, self.text = (
            FixedLines(focusable=False, id="inspector-facts"),
            LongText(id="inspector-text"),
        )
        self.find = FindPrompt(id="inspector-find")
        self._box = Vertical(self.facts, self.text, self.find, id="inspector")

    def compose_body(self) -> ComposeResult:
        """Facts above, one of four texts below, a line to type in."""
        yield self._box

    def on_mount(self) -> None:
        """Begin with the messages."""
        self.hints.show_area("prompt")
        self.set_focus(self.text)
        self._update_titles("loading …")
        self._go_to(self.step)

    @property
    def current_location(self) -> tuple[str, int]:
        """The step whose request is read."""
        return self._source.rollout, self.step

    @property
    def view(self) -> ContextView | None:
        """The request, once it was read."""
        return self.request.view if self.request else None

    # --- reading -----------------------------------------------------------------------------

    def _go_to(self, step: int) -> None:
        self.run_latest(partial(self._read, step), "inspector")

    async def _read(self, step: int) -> None:
        try:
            raw = await self._source.read(prompt_rendering.read_request(self._source.rollout, step))
        except HoustonError as problem:
            self.show_error(problem)
            return
        self.request = await asyncio.to_thread(prompt_rendering.inspect_request, raw)
        self.step = step
        await self._show()

    async def _show(self) -> None:
        """Wrap the text that is wanted, from where a reader of it begins."""
        request, tab = self.request, INSPECTOR_TABS[self.tab]
        if request is None or not self.text.region.width:
            return
        facts = request_facts(request, self.facts.line_cells)
        most = max(3, self.size.height // 3)
        self.facts.styles.height = min(len(facts), most) + 1
        self.facts.show_lines(lambda width: facts)
        width, needle = self.text.line_cells, self.text.needle
        lines, at = await asyncio.to_thread(tab.make, request, width)
        hits = await asyncio.to_thread(lines_with_needle, lines, needle) if needle else []
        self.text.copy = (f"the whole request ({tab.name})", _copied_text(request, self.tab))
        self.text.show_text(lines, hits, max(0, at - 2))
        self._update_titles()

    def _update_titles(self, now: str = "") -> None:
        names = "  ".join(
            f"‹{tab.name}›" if at == self.tab else tab.name for at, tab in enumerate(INSPECTOR_TABS)
        )
        newest = f" of {self.request.newest}" if self.request else ""
        box = self._box
        set_frame_title(box, f"Prompt inspector · step {self.step}{newest}   {names}")
        hits, needle = self.text.hits, self.text.needle
        counted = (
            f"{len(hits)} lines hold “{needle}”" if needle else f"{len(self.text.lines):,} lines"
        )
        set_frame_subtitle(box, line(now or counted))

    def on_resize(self) -> None:
        """Wrap again for the new width."""
        self.call_after_refresh(self._wrap_again)

    def _wrap_again(self) -> None:
        self.run_latest(self._show, "inspector-text")

    # --- keys --------------------------------------------------------------------------------

    def action_show(self, tab: int) -> None:
        """Show one of the texts."""
        self.tab = tab
        self._wrap_again()

    def action_turn(self, by: int) -> None:
        """The next text or the one before."""
        self.action_show((self.tab + by) % len(INSPECTOR_TABS))

    def action_other(self, by: int) -> None:
        """The request of the next step, or of the one before."""
        if self.step + by < 1:
            self.show_message("Step 1 is the first.", "warning")
        else:
            self._go_to(self.step + by)  # where there is none yet, that is said

    def action_cached(self) -> None:
        """Go to where the engine's cache ended."""
        at = next((n for n, row in enumerate(self.text.lines) if _is_cache_rule(row)), None)
        reach = self.request.cached_prefix if self.request else None
        if at is not None:
            self.text.jump(max(0, at - self.text.size.height // 2))
        elif reach is None:
            self.show_message(
                "The engine did not report its cache, or had none of this in it.", "dim"
            )
        else:
            words = "in the text is unknown; the token ids show it."
            self.show_message(
                f"{reach.tokens:,} tokens came from the cache. Where they end {words}", "dim"
            )

    def action_ask(self) -> None:
        """Ask for words to look for."""
        self.find.ask("/", "words to look for in this request; nothing ends the search")

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """Search for what was typed."""
        event.stop()
        self.text.needle = " ".join(event.value.split())
        lines, needle = self.text.lines, self.text.needle
        self.text.hits = await asyncio.to_thread(lines_with_needle, lines, needle)
        self._update_titles()
        self.text.refresh()
        if self.text.hits:
            self.action_hit(1)
        elif needle:
            self.show_message(f"Nothing here contains {needle!r}.", "warning")

    def action_hit(self, by: int) -> None:
        """The next line that holds what was looked for, or the one before."""
        if self.text.hits:
            at = self.text.next_hit(by)
            set_frame_subtitle(self._box, line(f"{at} of {len(self.text.hits)} lines"))

    async def action_choose(self) -> None:
        """Show this step in the trajectory."""
        await self.action_back()
        post_message_as(self._step_viewer, GoToStep(self.step))


def _is_cache_rule(parts: TextLine) -> bool:
    return len(parts) == 1 and parts[0].tone == "hunk" and parts[0].text.startswith("── ↑")


def _copied_text(request: InspectedRequest, tab: int) -> str:
    """A text as it is copied: not wrapped, nothing left out."""
    view = request.view
    if INSPECTOR_TABS[tab].make is prompt_rendering.token_id_lines and view.token_ids is not None:
        return " ".join(map(str, view.token_ids))
    if INSPECTOR_TABS[tab].make is prompt_rendering.difference_lines and request.diff is not None:
        return context_messages.format_messages([entry.message for entry in request.diff.new])
    if INSPECTOR_TABS[tab].make is prompt_rendering.message_lines:
        return context_messages.format_messages(view.messages)
    return view.rendered
