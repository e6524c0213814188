"""The Textual app: what all screens share, and what runs for as long as the console does.

`HoustonConsole` opens screens, starts background work, shows notices and faults, and copies text.
`write_screenshot` draws the console on a home as an SVG without a terminal. Screens decide what
they show; reads go through one asynchronous reader.
"""

import asyncio
import os
import re
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
from houston_console.app.background_alerts import BackgroundAlerts
from houston_console.app.configuration_watcher import ConfigurationWatcher
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
from houston_console.app.key_bindings import bindings_for
from houston_console.app.key_order import KeyOrder, TypedEvent
from houston_console.app.terminal_driver import SafeDriver, crash_console
from houston_console.app.undo_offers import UndoOffers
from houston_console.panes.guidance_outbox import GuidanceOutbox
from houston_console.screens.base_screen import ActionFailed, HoustonScreen, UserNotice
from houston_console.screens.compare_screen import CompareScreen
from houston_console.screens.home_screen import HomeScreen
from houston_console.screens.policies_screen import PoliciesScreen
from houston_console.screens.resources_screen import ResourcesScreen
from houston_console.screens.watch_screen import WatchScreen
from houston_console.transcript.transcript_view import Transcript
from houston_console.widgets import dialogs
from houston_console.widgets.ascii_marks import terminal_filters
from houston_console.widgets.color_themes import ANSI_THEME, DEFAULT_THEME, themes_for_depth
from houston_console.widgets.dialogs import CommandPalette, PaletteCommand
from houston_console.widgets.key_help import HelpDialog, KeyMenu
from houston_console.widgets.line_view import LineView
from houston_shared.config import LoadedConfiguration
from houston_shared.config_sections import ColorDepth
from houston_shared.errors import HoustonError
from houston_shared.safe_text import safe
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.presence_queries import Person, current_person
from houston_shared.wire import Notice

BACKGROUND_RETRY_SECONDS = 1.0
"""After which background work that failed is begun again."""


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
        ascii_only: bool = False,
    ) -> None:
        """rollout: the one to open, `id` or `id@step`. folder: where drafts are kept (for tests).

        low: little is to be written to the terminal: changes are drawn once in a while, in its own
        colours. name: as who somebody sits here, where several share a login; empty for its own.
        depth: how many colours the terminal has. ascii_only: whether it takes nothing else.
        """
        super().__init__(driver_class=SafeDriver)
        self._terminal_filters = terminal_filters(depth, ascii_only)
        self.depth: ColorDepth = depth
        self.no_color = depth == "none"
        self.error_console = crash_console()
        self._key_may_copy = False
        self._is_started = self._is_reporting_fault = False
        self.animation_level = "none"
        self.loaded = loaded
        self.state = ConsoleState(greeting=loaded.config.console.greeting)
        self.reader = AsyncReader(loaded.home)
        self.outbox = GuidanceOutbox(loaded.home, folder, name)
        self.errors = ErrorLog(self.outbox.folder / "console.log")
        self.link = DaemonLink(loaded.home, self.outbox, self._show_link_state, name, loaded.file)
        self.change_watcher = ChangeWatcher(
            loaded.home,
            self.reader,
            self.refresh_from_store,
            self._note_announced,
            self._report_read_failure,
            LOW_BANDWIDTH_SECONDS if low else COALESCE_SECONDS,
        )
        self.background_reader = AsyncReader(loaded.home)  # for what no key waits for
        self.undo_offers = UndoOffers(
            self._show_undo_offers,
            lambda words: self.top_screen.show_message(words, "success"),
            lambda problem: self.top_screen.show_error(problem),
            self.run_worker,
        )
        self._background_alerts = BackgroundAlerts(loaded)
        self._begins_at_home = not rollout
        self.keys = KeyOrder(self, self._handle_typed, self._report_dropped_keys)
        self._configuration_watcher: ConfigurationWatcher | None = None
        self.low = low
        self._make_screens(rollout, current_person(name))

    def _make_screens(self, rollout: str, person: Person) -> None:
        home = str(self.loaded.home.path).replace(str(Path.home()), "~", 1)
        self.state.person = person.name
        self.needs = NeedsReader(
            self.loaded.home,
            self.background_reader,
            person,
            self._show_board,
            self._report_read_failure,
        )
        self.watch_screen = WatchScreen(
            self.state,
            self.reader,
            self.outbox,
            self.link,
            self.undo_offers,
            home,
            rollout,
            self.background_reader,
            person,
        )
        self.home_screen = HomeScreen(
            self.state,
            self.background_reader,
            self.needs,
            self.link,
            self.undo_offers,
            home,
            self.show_rollout,
            self.compare,
        )

    def get_default_screen(self) -> Screen[None]:
        """The screen of the open rollout, below everything else."""
        return self.watch_screen

    async def on_mount(self) -> None:
        """Colours first, then everything that goes on for ever."""
        asyncio.get_running_loop().set_exception_handler(self._report_unawaited)
        for theme in themes_for_depth(self.depth):
            self.register_theme(theme)
        theme_name = self.loaded.config.console.theme
        self.apply_theme(theme_name)
        self._configuration_watcher = edits = ConfigurationWatcher(
            self.loaded,
            lambda text, tone: self.top_screen.show_message(text, tone),
            self.apply_theme,
        )
        going_on = (
            self.change_watcher.listen,
            self.change_watcher.run,
            self.link.run,
            self.needs.run,
            edits.run,
        )
        for work in going_on:
            self.run_worker(self._keep_running(work), group="background")
        self.install_screen(self.home_screen, "home")
        self.set_interval(1.0, self._refresh_status)
        self._is_started = True

    def apply_theme(self, theme_name: str) -> None:
        """Use the theme that the configuration names."""
        chosen = theme_name if theme_name in self.available_themes else DEFAULT_THEME
        self.theme = ANSI_THEME.name if self.low and chosen == DEFAULT_THEME else chosen

    def get_line_filters(self) -> Sequence[LineFilter]:
        """What every line passes before it is drawn: colours and characters of the terminal.

        Textual's own shades of grey for NO_COLOR are left out: a terminal shows them as colours.
        """
        filters = [item for item in super().get_line_filters() if not isinstance(item, Monochrome)]
        return [*filters, *self._terminal_filters]

    async def on_unmount(self) -> None:
        """Wait for pending actions, then close files and sockets."""
        await self.undo_offers.settle()
        if self._configuration_watcher:
            self._configuration_watcher.close()
        await self.link.close()
        await self.reader.close()
        await self.background_reader.close()

    # --- faults ------------------------------------------------------------------------------

    async def _keep_running(self, work: Callable[[], Awaitable[None]]) -> None:
        """Work in the background, begun again after a fault."""
        while True:
            try:
                return await work()
            except Exception as error:  # noqa: BLE001 shown and logged, whatever it is
                self.report_fault(work, error)
                await asyncio.sleep(BACKGROUND_RETRY_SECONDS)

    def _handle_exception(self, error: Exception) -> None:
        """What no boundary saw, as of timers and workers; Textual would end the program."""
        self.report_fault(self, error.error if isinstance(error, WorkerFailed) else error)

    def _report_unawaited(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What a task raised that nobody waited for, as those that read in the background."""
        error = context.get("exception")
        if isinstance(error, Exception):
            self.report_fault(self, error)
        else:
            loop.default_exception_handler(context)

    def report_fault(self, part: object, error: BaseException) -> str:
        """Log and show what a part raised; returns a line that says what and where.

        While the console is being opened there is nothing to go on with: then it ends.
        """
        if not self._is_started and isinstance(error, Exception):
            super()._handle_exception(error)
        try:
            fault = self.errors.add(part, error)
            follow = f"The traceback is in {self.errors.path}."
        except OSError as problem:
            fault = self.errors.faults[-1]
            follow = f"The traceback could not be kept: {problem.strerror}."
        if not self._is_reporting_fault:
            self._is_reporting_fault = True
            try:
                words = f"A part of the console failed: {fault}. The rest still works. {follow}"
                self.top_screen.show_message(words, "error")
            finally:
                self._is_reporting_fault = False
        return fault

    # --- what changed ------------------------------------------------------------------------

    @property
    def top_screen(self) -> HoustonScreen:
        """The full screen that is shown; questions and the prompt inspector stand before it."""
        # At the very end there is none any more.
        return next(reversed(self.full_screens), self.watch_screen)

    @property
    def full_screens(self) -> list[HoustonScreen]:
        """Those that are open, the lowest first; questions are none."""
        return [screen for screen in self.screen_stack if isinstance(screen, HoustonScreen)]

    async def refresh_from_store(self) -> None:
        """Bring everything that is shown up to the newest commit. Raises HoustonError."""
        changes = await self.reader.run(read_rollout_changes(self.state.seq))
        changed = self.state.merge(changes)
        self.state.problem = ""
        self.needs.wake()
        await self._open_first_screen()
        for screen in self.full_screens:
            await screen.refresh_from_state(changed)
        self._refresh_status()

    def _show_board(self, board: NeedsBoard) -> None:
        self.state.board = board
        if words := self._background_alerts.new_needs(board, self.app_focus):
            terminal_driver.alert(self._driver, words)
        for screen in self.full_screens:
            screen.show_board()

    # --- from screen to screen ---------------------------------------------------------------

    async def _open_first_screen(self) -> None:
        """Begin at home where there is a choice; a single rollout is opened by itself."""
        if self._begins_at_home and self.state.rollouts:
            if len(self.state.rollouts) > 1:
                self._show_board(await self.needs.read())  # so that the first picture is whole
                if self.top_screen is self.watch_screen:  # not over what was opened meanwhile
                    await self.action_home()
            self._begins_at_home = False

    async def action_home(self) -> None:
        """Open the home screen."""
        if self.home_screen not in self.screen_stack:
            await self.push_screen(self.home_screen)
            self.home_screen.show_on_arrival()

    async def show_rollout(self, rollout: str) -> None:
        """Show a rollout, from any screen; the one that is open is found as it was left."""
        while self.screen is not self.watch_screen:
            self.pop_screen()
        if rollout != self.state.selected:
            await self.watch_screen.go_to_rollout(rollout)
        self._refresh_status()

    async def compare(self, first: str, second: str) -> None:
        """Open two rollouts side by side."""
        home = str(self.loaded.home.path)
        await self.push_screen(
            CompareScreen(self.state, self.background_reader, home, first, second)
        )

    async def action_policies(self) -> None:
        """What was trained, and what new rollouts sample with."""
        if isinstance(self.screen, PoliciesScreen):
            return
        engine, home = self.loaded.config.default_engine, str(self.loaded.home.path)
        screen = PoliciesScreen(self.state, self.background_reader, self.link, home, engine)
        await self.push_screen(screen)

    async def action_resources(self) -> None:
        """Engines and machines, what runs where, and what waits."""
        if isinstance(self.screen, ResourcesScreen):
            return
        home = str(self.loaded.home.path)
        screen = ResourcesScreen(self.state, self.background_reader, self.link, home)
        await self.push_screen(screen)

    def _note_announced(self, notice: Notice) -> None:
        self.state.announced_seq = max(self.state.announced_seq, notice.seq)

    def _report_read_failure(self, problem: HoustonError) -> None:
        if problem.cause != self.state.problem:
            self.state.problem = problem.cause
            self.top_screen.show_error(problem)
            self.watch_screen.selector.show_state(self.state)

    def _show_link_state(self, state: DaemonLinkState, reason: str) -> None:
        before, self.state.link = self.state.link, state
        for screen in self.full_screens:
            screen.show_link_state()
        if state == "foreign" and before != "foreign":
            words = f"{reason} What you send waits.  next: houston daemon restart, open this again"
            self.top_screen.show_message(words, "error")
        elif before == "live" and state != "live":
            words = "The daemon is gone: reading only, guidance waits here as unsent."
            self.top_screen.show_message(words, "warning")
        elif before in ("down", "foreign") and state == "live":
            self.top_screen.show_message("The daemon is back.", "success")
        self.change_watcher.wake()

    # --- what can be taken back --------------------------------------------------------------

    def _show_undo_offers(self) -> None:
        self.undo_offers.drop_expired()
        self.state.undo_lines = self.undo_offers.lines()
        for screen in self.full_screens:
            screen.show_undo_offers()

    def action_take_back(self, anywhere: bool = False) -> None:
        """Undo what a key just did."""
        self.undo_offers.take_back()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what is offered can be taken back; while somebody types, letters are letters."""
        if action == "take_back":
            return bool(self.undo_offers.offers) and (
                bool(parameters) or not self.top_screen.is_typing
            )
        return super().check_action(action, parameters)

    def _refresh_status(self) -> None:
        self.link.set_location(*self.top_screen.current_location)
        self._show_undo_offers()
        for screen in self.full_screens:
            screen.refresh_status()

    def on_user_notice(self, message: UserNotice) -> None:
        """Show the notice of a pane."""
        self.top_screen.show_message(message.text, "success" if message.good else "warning")

    def on_action_failed(self, message: ActionFailed) -> None:
        """Show what could not be read or done."""
        self.top_screen.show_error(message.problem)

    async def action_help(self) -> None:
        """Open the page with all keys."""
        await self.push_screen(HelpDialog(self.top_screen.area))

    def action_menu(self) -> None:
        """Show what each key does here; the next one does it."""
        self.push_screen(KeyMenu(self.top_screen.area), self._run_command)

    # --- commands by name --------------------------------------------------------------------

    def action_commands(self) -> None:
        """Choose among everything that can be done here."""
        if isinstance(self.screen, CommandPalette):
            return
        other_rollouts = (
            rollout for rollout in self.state.rollouts.values() if rollout.id != self.state.selected
        )
        commands = dialogs.available_commands(
            self.top_screen.area, sorted(other_rollouts, key=lambda rollout: -rollout.updated_at)
        )
        self.push_screen(CommandPalette(commands), self._run_command)

    async def _run_command(self, command: PaletteCommand | None) -> None:
        """Do what was chosen, as if its key had been pressed where the focus is."""
        if command is None:
            return
        _, name, _ = actions.parse(command.action)
        chain = [*(self.focused.ancestors_with_self if self.focused else [self.screen]), self]
        node = next((widget for widget in chain if hasattr(widget, f"action_{name}")), self)
        await self.run_action(command.action, default_namespace=node)

    async def action_open(self, rollout: str) -> None:
        """Open a rollout, whatever is shown."""
        await self.show_rollout(rollout)

    def action_apply_theme(self, theme: str) -> None:
        """Other colours, until the console is left; the configuration keeps them."""
        self.theme = theme
        self.top_screen.show_message(
            f'To keep it: `[console] theme = "{theme}"` in houston.toml.', "dim"
        )

    # --- the clipboard -----------------------------------------------------------------------

    async def on_event(self, event: events.Event) -> None:
        """What is typed waits for what the key before it does; all else is Textual's."""
        if isinstance(event, TypedEvent) and not event.is_forwarded:
            await self.keys.take(event)
        else:
            await super().on_event(event)

    async def _handle_typed(self, event: TypedEvent) -> None:
        """Keys are noted: only they may write to the clipboard. What was told has been read."""
        if not self.screen_stack:
            return  # it is being left
        if isinstance(event, events.Key):
            self._key_may_copy = True
            # Here, not in `on_key`: a key that an area takes never rises to the app.
            self.top_screen.hints.clear_message()
            self.link.presence.note_key()
            self.top_screen.note_key(event.key)
            if isinstance(self.focused, LineView):
                self.focused.note_activity()
        await super().on_event(event)

    def _report_dropped_keys(self, count: int) -> None:
        keys = "A key that followed was" if count == 1 else f"{count} keys that followed were"
        self.top_screen.hints.add_to_message(f"{keys} not used.")

    def copy_to_clipboard(self, text: str) -> None:
        """Copy what Textual has found selected."""
        self.copy_in_background("the selection", text)

    def copy_in_background(self, label: str, text: str) -> None:
        """Copy as shown, so that pasted text contains no control characters either.

        label: how the text is named to the person. Each key copies once, however long it takes;
        nothing else copies. An empty text leaves the clipboard as it is: a line's own cut asks
        without a selection, too.
        """
        if text and self._key_may_copy:
            self._key_may_copy = False
            self._clipboard = safe(text)  # also what ctrl+v brings back here
            work = partial(self._write_clipboard, label, self._clipboard)
            self.run_worker(cast(Any, work), group="copy", exclusive=True)

    async def _write_clipboard(self, label: str, text: str) -> None:
        try:
            result = await terminal_driver.copy_text(
                text, label, os.environ, self._write_to_terminal, self.outbox.folder / "copied"
            )
        except OSError as problem:
            self.top_screen.show_message(f"Nothing was copied: {problem}", "error")
        else:
            self.top_screen.show_message(result.text, "success" if result.succeeded else "warning")

    def _write_to_terminal(self, data: str) -> None:
        if isinstance(self._driver, terminal_driver.SafeDriver):
            self._driver.write_past_filter(data)

    async def action_copy(self) -> None:
        """Copy what is selected; else what the area with the focus has at its cursor."""
        selected = self.screen.get_selected_text()
        if selected:
            self.copy_in_background("the selection", selected)
        elif isinstance(self.focused, LineView):
            try:
                self.copy_in_background(*await self.focused.text_to_copy())
            except HoustonError as problem:
                self.top_screen.show_error(problem)


PICTURE_TIMEOUT_SECONDS = 120.0
"""How long a picture waits at most for what it shows: on a busy machine, of thousands of rollouts.
"""


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
    Raises HoustonError when the home cannot be read, or not in `PICTURE_TIMEOUT_SECONDS`.
    """
    try:
        async with asyncio.timeout(PICTURE_TIMEOUT_SECONDS):
            await _write_screenshot(loaded, rollout, path, size, keys, name, depth)
    except TimeoutError:
        raise HoustonError(
            f"The screen was not read within {PICTURE_TIMEOUT_SECONDS:.0f} s.",
            "No picture was written.",
            "Try again when the machine is less busy.",
        ) from None


async def _write_screenshot(
    loaded: LoadedConfiguration,
    rollout: str,
    path: Path,
    size: tuple[int, int],
    keys: Sequence[str],
    name: str,
    depth: ColorDepth,
) -> None:
    app = HoustonConsole(loaded, rollout, name=name, depth=depth)
    async with app.run_test(size=size) as pilot:
        await app.refresh_from_store()
        for pressed in ((), keys):
            await pilot.press(*pressed)
            await app.keys.settle()
            await pilot.pause()
            await app.query_one(Transcript).settle()
            await app.home_screen.preview.settle()
        await pilot.pause()
        path.write_text(
            without_remote_fonts(app.export_screenshot(title="houston console")), encoding="utf-8"
        )


def without_remote_fonts(svg: str) -> str:
    """The picture without the addresses of fonts elsewhere: looking at it asks nobody."""
    without = _REMOTE_FONTS.sub("", svg)
    return re.sub(r"font-family: Fira Code[^;]*;", f"font-family: {_LOCAL_FONTS};", without)
