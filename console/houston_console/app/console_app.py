"""The Textual app: what all screens share, and what runs for as long as the console does.

`HoustonConsole` opens screens, starts background work, shows notices and faults, and copies text.
`ConfigurationWatcher` takes edits of houston.toml and of the keymap while the console is open.
`write_screenshot` draws the console on a home as an SVG without a terminal. Screens decide what
they show; reads go through one asynchronous reader.
"""

import asyncio
import contextlib
import os
import re
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

from houston_console.app import terminal_driver
from houston_console.app.console_state import (
    COALESCE_SECONDS,
    LOW_BANDWIDTH_SECONDS,
    ChangeWatcher,
    ConsoleState,
    DaemonLinkState,
    NeedsBoard,
    NeedsReader,
    read_rollout_changes,
)
from houston_console.app.daemon_link import DaemonLink
from houston_console.app.error_boundary import ErrorBoundary, ErrorLog
from houston_console.app.key_bindings import bindings_for, keymap_path, load_keymap
from houston_console.app.terminal_driver import SafeDriver, crash_console
from houston_console.app.undo_offers import UndoOffers
from houston_console.panes.guidance_messages import GuidanceOutbox
from houston_console.screens.base_screen import ActionFailed, HoustonScreen, UserNotice
from houston_console.screens.compare_screen import CompareScreen
from houston_console.screens.home_screen import HomeScreen
from houston_console.screens.policies_screen import PoliciesScreen
from houston_console.screens.watch_screen import WatchScreen
from houston_console.transcript.transcript_view import Transcript
from houston_console.widgets import dialogs
from houston_console.widgets.color_themes import (
    ANSI_THEME,
    DEFAULT_THEME,
    QuantizedColors,
    themes_for_depth,
)
from houston_console.widgets.dialogs import CommandPalette, HelpDialog, PaletteCommand
from houston_console.widgets.line_view import LineView
from houston_shared.config import ColorDepth, LoadedConfiguration
from houston_shared.config_reload import (
    SETTLE_SECONDS,
    ConfigurationFile,
    EditedFiles,
    FolderWatcher,
)
from houston_shared.errors import HoustonError
from houston_shared.safe_text import safe
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.presence_queries import current_person
from houston_shared.wire import Notice

EDIT_POLL_SECONDS = 5.0
"""How often it looks where nothing wakes it."""
CONSOLE_KEYS = ("console.", "default_engine")
"""Keys that a console goes by; of the others the daemon says what became of them."""
RESTART_KEYS = ("home", "console.name")
"""Keys that hold for as long as a console is open."""


class ConfigurationWatcher:
    """Takes what was edited, for ever."""

    def __init__(self, app: "HoustonConsole") -> None:
        """app: what is told, and dressed."""
        self._app = app
        self._file = ConfigurationFile(app.loaded)
        self._keys = keymap_path()
        self._edited = EditedFiles()
        self._edited.follow([self._file.path], as_changed=True)  # since it was read, maybe
        self._edited.follow([self._file.path, self._keys])
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._watcher = FolderWatcher(self._wake)

    async def run(self) -> None:
        """Look whenever something changed, and now and then."""
        while True:
            self._watcher.follow(self._edited.followed)
            pause = SETTLE_SECONDS if self._look() else EDIT_POLL_SECONDS
            try:
                await asyncio.wait_for(self._woken.wait(), pause)
            except TimeoutError:
                continue
            self._woken.clear()

    def _wake(self) -> None:
        """Called from the watcher's thread, at the very end without a loop."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._woken.set)

    def close(self) -> None:
        """Watch nothing any more."""
        self._watcher.close()

    def _look(self) -> bool:
        """Take what has settled; whether something has not."""
        for path in self._edited.changed(time.monotonic()):
            if path == self._keys:
                self._rekeyed()
            else:
                self._reconfigured()
        return self._edited.due(time.monotonic()) is not None

    def _rekeyed(self) -> None:
        try:
            load_keymap(self._keys)
        except HoustonError as problem:
            self._app.front.tell(f"{problem.cause} The keys stay as they were.", "error")
        else:
            self._app.front.tell("Your keys were edited: open the console again for them.", "dim")

    def _reconfigured(self) -> None:
        edit = self._file.take(restart=RESTART_KEYS)
        if edit.refused:
            self._app.front.tell(edit.refused, "error")
            return
        if not edit.changed and not edit.later:
            return
        if "console.theme" in edit.changed:
            self._app.dress(self._app.loaded.config.console.theme)
        ours = [key for key in edit.changed if key.startswith(CONSOLE_KEYS)]
        said = [f"{', '.join(ours)} in force"] if ours else []
        if edit.later:
            said.append(f"{', '.join(edit.later)}: open the console again")
        words = "; ".join(said) or "nothing of it is for the console"
        self._app.front.tell(f"{self._file.path.name} was edited: {words}.", "success")


BACKGROUND_RETRY_SECONDS = 1.0
"""After which background work that failed is begun again."""
COPY_AFTER_KEY_SECONDS = 1.0
"""How long after a key the clipboard may be written for it."""


class HoustonConsole(ErrorBoundary, App[None]):
    """One annotator's console on one home."""

    CSS_PATH = "console.tcss"
    BINDINGS = [*bindings_for("app"), *bindings_for("undo")]
    ENABLE_COMMAND_PALETTE = False

    def __init__(
        self,
        loaded: LoadedConfiguration,
        rollout: str = "",
        folder: Path | None = None,
        low: bool = False,
        name: str = "",
        depth: ColorDepth = "truecolor",
    ) -> None:
        """rollout: the one to open, a whole id. folder: where drafts are kept (for tests).

        low: little is to be written to the terminal: changes are drawn once in a while, in the
        terminal's own colours. name: as who somebody sits here, where several share a login; empty
        for the login's own. depth: how many colours the terminal has.
        """
        super().__init__(driver_class=SafeDriver)
        self._quantised = QuantizedColors(depth)
        self.depth: ColorDepth = depth
        self.no_color = depth == "none"
        self.error_console = crash_console()
        self._pressed_at = -COPY_AFTER_KEY_SECONDS
        self._begun = self._telling = False
        self.animation_level = "none"
        self.loaded = loaded
        self.state = ConsoleState()
        self.reader = AsyncReader(loaded.home)
        self.outbox = GuidanceOutbox(loaded.home, folder, name)
        self.errors = ErrorLog(self.outbox.folder / "console.log")
        self.link = DaemonLink(loaded.home, self.outbox, self._linked, name)
        self.pump = ChangeWatcher(
            loaded.home,
            self.reader,
            self.catch_up,
            self._announced,
            self._cannot_read,
            LOW_BANDWIDTH_SECONDS if low else COALESCE_SECONDS,
        )
        home = str(loaded.home.path).replace(str(Path.home()), "~", 1)
        self.aside = AsyncReader(loaded.home)  # for what no key waits for
        self.undoing = UndoOffers(
            self._offer,
            lambda words: self.front.tell(words, "success"),
            lambda problem: self.front.told(problem),
            self.run_worker,
        )
        person = current_person(name)
        self.state.me = person.name
        self.needs = NeedsReader(loaded.home, self.aside, person, self._judged, self._cannot_read)
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
        self._edits: ConfigurationWatcher | None = None
        self.low = low

    def get_default_screen(self) -> Screen[None]:
        """The rollout that is looked at lies below everything else."""
        return self.watching

    async def on_mount(self) -> None:
        """Colours first, then everything that goes on for ever."""
        for theme in themes_for_depth(self.depth):
            self.register_theme(theme)
        wanted = self.loaded.config.console.theme
        self.dress(wanted)
        self._edits = edits = ConfigurationWatcher(self)
        going_on = (self.pump.listen, self.pump.run, self.link.run, self.needs.run, edits.run)
        for work in going_on:
            self.run_worker(self._for_ever(work), group="background")
        self.install_screen(self.at_home, "home")
        self.set_interval(1.0, self._say)
        self._begun = True

    def dress(self, wanted: str) -> None:
        """The colours that the configuration names."""
        given = wanted if wanted in self.available_themes else DEFAULT_THEME
        self.theme = ANSI_THEME.name if self.low and given == DEFAULT_THEME else given

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
                await asyncio.sleep(BACKGROUND_RETRY_SECONDS)

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
        seen = await self.reader.run(read_rollout_changes(self.state.seq))
        changed = self.state.take(seen)
        self.state.problem = ""
        self.needs.wake()
        await self._begin()
        for screen in self.full_screens:
            await screen.caught_up(changed)
        self._say()

    def _judged(self, board: NeedsBoard) -> None:
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

    def _linked(self, state: DaemonLinkState, reason: str) -> None:
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

    # --- what can be taken back --------------------------------------------------------------

    def _offer(self) -> None:
        self.undoing.look()
        self.state.offered = self.undoing.lines()
        for screen in self.full_screens:
            screen.offer()

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

    def on_user_notice(self, message: UserNotice) -> None:
        """An area has something to say."""
        self.front.tell(message.text, "success" if message.good else "warning")

    def on_action_failed(self, message: ActionFailed) -> None:
        """Something could not be read or done."""
        self.front.told(message.problem)

    async def action_help(self) -> None:
        """Every key."""
        await self.push_screen(HelpDialog(self.front.area))

    # --- commands by name --------------------------------------------------------------------

    def action_commands(self) -> None:
        """Choose among everything that can be done here."""
        if isinstance(self.screen, CommandPalette):
            return
        others = (one for one in self.state.rollouts.values() if one.id != self.state.selected)
        found = dialogs.available_commands(
            self.front.area, sorted(others, key=lambda one: -one.updated_at)
        )
        self.push_screen(CommandPalette(found), self._do)

    async def _do(self, command: PaletteCommand | None) -> None:
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
        asked = time.monotonic() - self._pressed_at < COPY_AFTER_KEY_SECONDS
        self._pressed_at = -COPY_AFTER_KEY_SECONDS
        return asked

    def copy_to_clipboard(self, text: str) -> None:
        """Copy what Textual has found selected."""
        self.put_into_clipboard("the selection", text)

    def put_into_clipboard(self, what: str, text: str) -> None:
        """Copy as shown: what is pasted elsewhere holds no control character either.

        what: how the text is named to the person. Nothing happens unless a key was just pressed,
        and no text leaves what the clipboard has: a line's own cut asks without a selection, too.
        """
        if text and time.monotonic() - self._pressed_at < COPY_AFTER_KEY_SECONDS:
            self._clipboard = safe(text)  # also what ctrl+v brings back here
            work = partial(self._copy, what, self._clipboard)
            self.run_worker(cast(Any, work), group="copy", exclusive=True)

    async def _copy(self, what: str, text: str) -> None:
        try:
            done = await terminal_driver.copy_text(
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


FIRST_READ_TIMEOUT_SECONDS = 5.0
"""How long at most until the first read is on the screen."""


_REMOTE_FONTS = re.compile(r"@font-face\s*{[^}]*}\s*")
_LOCAL_FONTS = "'Fira Code', 'DejaVu Sans Mono', Menlo, Consolas, monospace"


async def write_screenshot(
    loaded: LoadedConfiguration,
    rollout: str,
    path: Path,
    size: tuple[int, int],
    keys: Sequence[str] = (),
    name: str = "",
    depth: ColorDepth = "truecolor",
) -> None:
    """Write what the console shows as SVG into `path`.

    size: columns and lines. keys: pressed before the picture is taken, named as Textual does.
    name: who looks, where several share a login. depth: the colours that it may have.
    Raises HoustonError when the home cannot be read.
    """
    app = HoustonConsole(loaded, rollout, name=name, depth=depth)
    async with app.run_test(size=size) as pilot:
        await app.catch_up()
        async with asyncio.timeout(FIRST_READ_TIMEOUT_SECONDS):
            await pilot.pause()
            await app.query_one(Transcript).settle()
            await pilot.press(*keys)
            await pilot.pause()
            await app.query_one(Transcript).settle()
            await pilot.pause()
        path.write_text(
            without_remote_fonts(app.export_screenshot(title="houston console")), encoding="utf-8"
        )


def without_remote_fonts(svg: str) -> str:
    """The picture without the addresses of fonts elsewhere: looking at it asks nobody."""
    without = _REMOTE_FONTS.sub("", svg)
    return re.sub(r"font-family: Fira Code[^;]*;", f"font-family: {_LOCAL_FONTS};", without)
