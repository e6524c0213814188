"""The console: what all its screens share, and what it does for as long as it runs.

Reads go through one asynchronous reader, wake-ups through `pump`, words to the daemon through
`link`; screens know what to show of it.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from textual import actions, events
from textual.app import App
from textual.filter import LineFilter, Monochrome
from textual.screen import Screen
from textual.worker import WorkerFailed

from houston_console.app.comfort import clipboard, commands
from houston_console.app.comfort.commands import Command, Commands
from houston_console.app.compare.screen import CompareScreen
from houston_console.app.dialogs import Help
from houston_console.app.drawing.depth import Quantised
from houston_console.app.drawing.line_view import LineView
from houston_console.app.drawing.themes import ANSI, DEFAULT, themes
from houston_console.app.driver import SafeDriver, last_words
from houston_console.app.edits import Edits
from houston_console.app.error_boundary import ErrorBoundary, ErrorLog
from houston_console.app.home.screen import HomeScreen
from houston_console.app.keys import bindings
from houston_console.app.link import Link
from houston_console.app.messages import Failed, Told
from houston_console.app.policies.screen import PoliciesScreen
from houston_console.app.pump import COALESCE_SECONDS, LOW_SECONDS, Pump
from houston_console.app.rollouts.needs import Board, Needs
from houston_console.app.rollouts.plans import overview
from houston_console.app.screen import HoustonScreen
from houston_console.app.speaking.outbox import Outbox
from houston_console.app.state import ConsoleState, LinkState
from houston_console.app.undoing import Undoing
from houston_console.app.watching import WatchScreen
from houston_shared.config import Depth, Loaded
from houston_shared.errors import HoustonError
from houston_shared.person import myself
from houston_shared.safe_text import safe
from houston_shared.store.async_reader import AsyncReader
from houston_shared.wire import Notice

AGAIN_SECONDS = 1.0
"""After which background work that failed is begun again."""
COPY_SECONDS = 1.0
"""How long after a key the clipboard may be written for it."""


class HoustonConsole(ErrorBoundary, App[None]):
    """One annotator's console on one home."""

    CSS_PATH = "console.tcss"
    BINDINGS = [*bindings("app"), *bindings("undo")]
    ENABLE_COMMAND_PALETTE = False

    def __init__(
        self,
        loaded: Loaded,
        rollout: str = "",
        folder: Path | None = None,
        low: bool = False,
        name: str = "",
        depth: Depth = "truecolor",
    ) -> None:
        """rollout: the one to open, a whole id. folder: where drafts are kept (for tests).

        low: little is to be written to the terminal: changes are drawn once in a while, in the
        terminal's own colours. name: as who somebody sits here, where several share a login; empty
        for the login's own. depth: how many colours the terminal has.
        """
        super().__init__(driver_class=SafeDriver)
        self._quantised = Quantised(depth)
        self.depth: Depth = depth
        self.no_color = depth == "none"
        self.error_console = last_words()
        self._pressed_at = -COPY_SECONDS
        self._begun = self._telling = False
        self.animation_level = "none"
        self.loaded = loaded
        self.state = ConsoleState()
        self.reader = AsyncReader(loaded.home)
        self.outbox = Outbox(loaded.home, folder, name)
        self.errors = ErrorLog(self.outbox.folder / "console.log")
        self.link = Link(loaded.home, self.outbox, self._linked, name)
        self.pump = Pump(
            loaded.home,
            self.reader,
            self.catch_up,
            self._announced,
            self._cannot_read,
            LOW_SECONDS if low else COALESCE_SECONDS,
        )
        home = str(loaded.home.path).replace(str(Path.home()), "~", 1)
        self.aside = AsyncReader(loaded.home)  # for what no key waits for
        self.undoing = Undoing(self._offer, self._did, self._not_done, self.run_worker)
        person = myself(name)
        self.state.me = person.name
        self.needs = Needs(loaded.home, self.aside, person, self._judged, self._cannot_read)
        self.watching = WatchScreen(
            self.state,
            self.reader,
            self.outbox,
            self.link,
            self.undoing,
            home,
            rollout,
            self.aside,
            person,
        )
        self.at_home = HomeScreen(
            self.state,
            self.aside,
            self.needs,
            self.link,
            self.undoing,
            home,
            self.show_rollout,
            self.compare,
        )
        self._begins = not rollout
        self._edits: Edits | None = None
        self.low = low

    def get_default_screen(self) -> Screen[None]:
        """The rollout that is looked at lies below everything else."""
        return self.watching

    async def on_mount(self) -> None:
        """Colours first, then everything that goes on for ever."""
        for theme in themes(self.depth):
            self.register_theme(theme)
        wanted = self.loaded.config.console.theme
        self.dress(wanted)
        self._edits = edits = Edits(self)
        going_on = (self.pump.listen, self.pump.run, self.link.run, self.needs.run, edits.run)
        for work in going_on:
            self.run_worker(self._for_ever(work), group="background")
        self.install_screen(self.at_home, "home")
        self.set_interval(1.0, self._say)
        self._begun = True

    def dress(self, wanted: str) -> None:
        """The colours that the configuration names."""
        given = wanted if wanted in self.available_themes else DEFAULT
        self.theme = ANSI.name if self.low and given == DEFAULT else given

    def get_line_filters(self) -> Sequence[LineFilter]:
        """What every line passes before it is drawn: the colours that the terminal has.

        Textual's own shades of grey for NO_COLOR are left out: a terminal shows them as colours.
        """
        kept = [one for one in super().get_line_filters() if not isinstance(one, Monochrome)]
        return kept if self.depth == "truecolor" else [*kept, self._quantised]

    async def on_unmount(self) -> None:
        """What is on its way arrives; then let go of files and sockets."""
        await self.undoing.settle()
        if self._edits:
            self._edits.close()
        await self.link.close()
        await self.reader.close()
        await self.aside.close()

    # --- faults ------------------------------------------------------------------------------

    async def _for_ever(self, work: Callable[[], Awaitable[None]]) -> None:
        """Work in the background, begun again after a fault."""
        while True:
            try:
                return await work()
            except Exception as error:  # noqa: BLE001 shown and logged, whatever it is
                self.take_fault(work, error)
                await asyncio.sleep(AGAIN_SECONDS)

    def _handle_exception(self, error: Exception) -> None:
        """What no boundary saw, as of timers and workers; Textual would end the program."""
        self.take_fault(self, error.error if isinstance(error, WorkerFailed) else error)

    def take_fault(self, part: object, error: BaseException) -> str:
        """Log and show what a part raised; returns a line that says what and where.

        While the console is being opened there is nothing to go on with: then it ends.
        """
        if not self._begun and isinstance(error, Exception):
            super()._handle_exception(error)
        try:
            fault = self.errors.add(part, error)
            follow = f"The traceback is in {self.errors.path}."
        except OSError as problem:
            fault = self.errors.faults[-1]
            follow = f"The traceback could not be kept: {problem.strerror}."
        if not self._telling:
            self._telling = True
            try:
                words = f"A part of the console failed: {fault}. The rest goes on. {follow}"
                self.front.tell(words, "error")
            finally:
                self._telling = False
        return fault

    # --- what changed ------------------------------------------------------------------------

    @property
    def front(self) -> HoustonScreen:
        """The full screen that is shown; questions and the eye stand before it."""
        # At the very end there is none any more.
        return next(reversed(self.full_screens), self.watching)

    @property
    def full_screens(self) -> list[HoustonScreen]:
        """Those that are open, the lowest first; questions are none."""
        return [one for one in self.screen_stack if isinstance(one, HoustonScreen)]

    async def catch_up(self) -> None:
        """Bring everything that is shown up to the newest commit. Raises HoustonError."""
        seen = await self.reader.run(overview(self.state.seq))
        changed = self.state.take(seen)
        self.state.problem = ""
        self.needs.wake()
        await self._begin()
        for screen in self.full_screens:
            await screen.caught_up(changed)
        self._say()

    def _judged(self, board: Board) -> None:
        self.state.board = board
        for screen in self.full_screens:
            screen.judged()

    # --- from screen to screen ---------------------------------------------------------------

    async def _begin(self) -> None:
        """Begin at home where there is a choice; a single rollout is opened by itself."""
        if self._begins and self.state.rollouts:
            if len(self.state.rollouts) > 1:
                self._judged(await self.needs.read())  # so that the first picture is whole
                await self.action_home()
            self._begins = False

    async def action_home(self) -> None:
        """Who needs me?"""
        if self.at_home not in self.screen_stack:
            await self.push_screen(self.at_home)
            self.at_home.arrive()

    async def show_rollout(self, rollout: str) -> None:
        """Show a rollout, from any screen; the one that is open is found as it was left."""
        while self.screen is not self.watching:
            self.pop_screen()
        if rollout != self.state.selected:
            await self.watching.choose(rollout)
        self._say()

    async def compare(self, first: str, second: str) -> None:
        """Two rollouts side by side."""
        home = str(self.loaded.home.path)
        await self.push_screen(CompareScreen(self.state, self.aside, home, first, second))

    async def action_policies(self) -> None:
        """What was trained, and what new rollouts sample with."""
        if isinstance(self.screen, PoliciesScreen):
            return
        engine, home = self.loaded.config.default_engine, str(self.loaded.home.path)
        screen = PoliciesScreen(self.state, self.aside, self.link, home, engine)
        await self.push_screen(screen)

    def _announced(self, notice: Notice) -> None:
        self.state.announced = max(self.state.announced, notice.seq)

    def _cannot_read(self, problem: HoustonError) -> None:
        if problem.cause != self.state.problem:
            self.state.problem = problem.cause
            self.front.told(problem)
            self.watching.selector.take(self.state)

    def _linked(self, state: LinkState, reason: str) -> None:
        before, self.state.link = self.state.link, state
        self.state.link_reason = reason
        for screen in self.full_screens:
            screen.linked()
        if before == "live" and state != "live":
            words = "The daemon is gone: reading only, guidance waits here as unsent."
            self.front.tell(words, "warning")
        elif before == "down" and state == "live":
            self.front.tell("The daemon is back.", "success")
        self.pump.wake()

    # --- what is said ------------------------------------------------------------------------

    # --- what can be taken back --------------------------------------------------------------

    def _offer(self) -> None:
        self.undoing.look()
        self.state.offered = self.undoing.lines()
        for screen in self.full_screens:
            screen.offer()

    def _did(self, words: str) -> None:
        self.front.tell(words, "success")

    def _not_done(self, problem: HoustonError) -> None:
        self.front.told(problem)

    def action_take_back(self, anywhere: bool = False) -> None:
        """Undo what a key just did."""
        self.undoing.take_back()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what is offered can be taken back; while somebody types, letters are letters."""
        if action == "take_back":
            return bool(self.undoing.offers) and (bool(parameters) or not self.front.types)
        return super().check_action(action, parameters)

    def _say(self) -> None:
        self.link.look_at(*self.front.place)
        self._offer()
        for screen in self.full_screens:
            screen.say()

    def on_told(self, message: Told) -> None:
        """An area has something to say."""
        self.front.tell(message.text, "success" if message.good else "warning")

    def on_failed(self, message: Failed) -> None:
        """Something could not be read or done."""
        self.front.told(message.problem)

    async def action_help(self) -> None:
        """Every key."""
        await self.push_screen(Help(self.front.area))

    # --- commands by name --------------------------------------------------------------------

    def action_commands(self) -> None:
        """Choose among everything that can be done here."""
        if isinstance(self.screen, Commands):
            return
        others = (one for one in self.state.rollouts.values() if one.id != self.state.selected)
        found = commands.here(self.front.area, sorted(others, key=lambda one: -one.updated_at))
        self.push_screen(Commands(found), self._do)

    async def _do(self, command: Command | None) -> None:
        """Do what was chosen, as if its key had been pressed where the focus is."""
        if command is None:
            return
        _, name, _ = actions.parse(command.action)
        chain = [*(self.focused.ancestors_with_self if self.focused else [self.screen]), self]
        node = next((one for one in chain if hasattr(one, f"action_{name}")), self)
        await self.run_action(command.action, default_namespace=node)

    async def action_open(self, rollout: str) -> None:
        """Open a rollout, whatever is shown."""
        await self.show_rollout(rollout)

    def action_dress(self, theme: str) -> None:
        """Other colours, until the console is left; the configuration keeps them."""
        self.theme = theme
        self.front.tell(f'For always: `[console] theme = "{theme}"` in houston.toml.', "dim")

    # --- the clipboard -----------------------------------------------------------------------

    async def on_event(self, event: events.Event) -> None:
        """Keys are noted: only they may write to the clipboard. What was told has been read."""
        if isinstance(event, events.Key):
            if not self.screen_stack:
                return  # it is being left
            self._pressed_at = time.monotonic()
            # Here, not in `on_key`: a key that an area takes never rises to the app.
            self.front.hints.quiet()
            self.link.presence.pressed()
            self.front.pressed(event.key)
            if isinstance(self.focused, LineView):
                self.focused.touched()
        await super().on_event(event)

    def may_copy(self) -> bool:
        """Whether a key was just pressed; one key copies once."""
        asked = time.monotonic() - self._pressed_at < COPY_SECONDS
        self._pressed_at = -COPY_SECONDS
        return asked

    def copy_to_clipboard(self, text: str) -> None:
        """Copy what Textual has found selected."""
        self.put_into_clipboard("the selection", text)

    def put_into_clipboard(self, what: str, text: str) -> None:
        """Copy as shown: what is pasted elsewhere holds no control character either.

        what: how the text is named to the person. Nothing happens unless a key was just pressed,
        and no text leaves what the clipboard has: a line's own cut asks without a selection, too.
        """
        if text and time.monotonic() - self._pressed_at < COPY_SECONDS:
            self._clipboard = safe(text)  # also what ctrl+v brings back here
            work = partial(self._copy, what, self._clipboard)
            self.run_worker(cast(Any, work), group="copy", exclusive=True)

    async def _copy(self, what: str, text: str) -> None:
        try:
            done = await clipboard.copy(
                text, what, os.environ, self._to_terminal, self.outbox.folder / "copied"
            )
        except OSError as problem:
            self.front.tell(f"Nothing was copied: {problem}", "error")
        else:
            self.front.tell(done.words, "success" if done.good else "warning")

    def _to_terminal(self, data: str) -> None:
        if self._driver is not None:
            self._driver.write(data)

    async def action_copy(self) -> None:
        """Copy what is selected; else what the area with the focus has at its cursor."""
        selected = self.screen.get_selected_text()
        if selected:
            self.put_into_clipboard("the selection", selected)
        elif isinstance(self.focused, LineView):
            try:
                self.put_into_clipboard(*await self.focused.copied())
            except HoustonError as problem:
                self.front.told(problem)
