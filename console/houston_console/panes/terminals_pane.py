"""The terminals pane: the terminals of the rollout as they grow, or as a step left one.

One terminal has the keys; the others are tiles beside it where there is room (`terminal_tiles`),
and tabs on the frame, which say how each stands. Read-only; looked at only while on the screen, at
most five times a second. Logs are read by `panes.terminal_log_reader`.
"""

import asyncio
import os
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from textual.app import ComposeResult, SuspendNotSupported

from houston_console.app.key_bindings import bindings_for, key_label
from houston_console.panes import terminal_log_reader
from houston_console.panes.terminal_attach import attach_command
from houston_console.panes.terminal_log_reader import (
    EMPTY_SNAPSHOT,
    FetchedLogs,
    LogIndex,
    TerminalSnapshot,
)
from houston_console.panes.terminal_tiles import (
    TerminalTiles,
    TileContent,
    command_outcome,
    tab_titles,
)
from houston_console.screens.base_screen import GoToStep, Pane, post_message_as
from houston_console.transcript.trajectory_reader import RolloutSource
from houston_console.widgets.line_view import LineView, set_frame_subtitle, set_frame_title
from houston_console.widgets.styled_text import (
    LOADING_LINE,
    TextLine,
    TextSpan,
    justify_line,
    line,
    span,
    text_block,
)
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.errors import HoustonError
from houston_shared.records import RolloutSpec
from houston_shared.safe_text import SafeText
from houston_shared.store import rollout_queries, workspace_queries
from houston_shared.store.journal_events import ReadPlan, RowRecord, RunSql
from houston_shared.times_and_counts import local_time


class RolloutTerminals(NamedTuple):
    """Terminals of a rollout, and the machines they may be on."""

    names: list[tuple[str, str]]
    """Host and name of those that steps used."""
    spec: RolloutSpec


class StepOutput(RowRecord, frozen=True):
    """What one terminal printed during a step."""

    step: int
    start: int
    end: int
    at: int
    """When the step was closed; 0 while it is open."""
    rollout: str
    """Whose step, and so whose terminal, it is: a branch shares those of its parent."""


def read_rollout_terminals(rollout: str) -> ReadPlan[RolloutTerminals]:
    """Terminals that steps used."""
    names = [(row.host, row.name) for row in (yield from workspace_queries.list_terminals(rollout))]
    row = yield from rollout_queries.find_rollout(rollout)
    return RolloutTerminals(names, (yield from rollout_queries.read_rollout_spec(row)))


def read_step_output(
    rollout: str, host: str, name: str, step: int, by: int = 0
) -> ReadPlan[StepOutput | None]:
    """The newest step up to `step` in which a terminal printed; by: 1 the next after, -1 before."""
    later = by > 0
    parts = yield from rollout_queries.step_ranges(rollout)
    for part in parts if later else reversed(parts):
        rows = yield RunSql(
            "SELECT t.step, t.start, t.end, coalesce(s.closed_at, 0), t.rollout"
            " FROM terminal_spans t JOIN steps s USING (rollout, step, attempt)"
            " WHERE t.rollout = ?1 AND s.current = 1 AND t.step BETWEEN ?2 AND ?3"
            f" AND t.host = ?4 AND t.terminal = ?5 AND t.step {'>' if later else '<='} ?6"
            f" ORDER BY t.step {'' if later else 'DESC'} LIMIT 1",
            (*part, host, name, step - 1 if by < 0 else step),
        )
        if rows:
            return StepOutput(*rows[0])
    return None


STEP_EDGE = TextSpan(SafeText("▎"), "tool")
"""Stands before what the step printed that is looked at."""
MAX_COPIED_LINES = 5_000
"""Lines of a step that are copied at most."""


class TerminalView(LineView):
    """The output, its end visible until somebody scrolls up."""

    has_cursor = False

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._index: LogIndex | None = None
        self._screen_lines: tuple[TextLine, ...] = ()
        self._marked_lines = range(0)
        """Lines that the step printed, or the one that was gone to."""
        self._stays_at_line = False
        """Whether a line was gone to: it stays in view while more is printed."""

    def line_count(self) -> int:
        """All lines of the log, or of what tmux shows."""
        return self._index.lines if self._index is not None else len(self._screen_lines)

    def line_at(self, number: int) -> TextLine:
        """One of them, cut with `…` where it is too long; a prompt says how its command ended."""
        if self._index is None:
            parts, outcome = self._screen_lines[number], command_outcome(None)
        else:
            parts = self._index.line(number)
            outcome = command_outcome(self._index.command(number))
        if not self._marked_lines:
            return justify_line(parts, outcome, self.line_cells)
        edge = STEP_EDGE if number in self._marked_lines else span(" ")
        return (edge, *justify_line(parts, outcome, self.line_cells - 1))

    async def text_to_copy(self) -> tuple[str, str]:
        """What the step printed, else what can be seen."""
        top = round(self.scroll_y)
        visible = range(top, min(self.line_count(), top + self.size.height))
        wanted_lines = self._marked_lines[:MAX_COPIED_LINES] or visible
        rows = [self._index.line(n) if self._index else self._screen_lines[n] for n in wanted_lines]
        text = "\n".join("".join(part.text for part in row) for row in rows)
        return "what the step printed" if self._marked_lines else "what the terminal shows", text

    def show_live(self, snapshot: TerminalSnapshot, at_end: bool = False) -> None:
        """As it stands; at its end where it was there before, or where that is wanted."""
        was_at_end = at_end or round(self.scroll_y) >= round(self.max_scroll_y)
        stays = self._stays_at_line and snapshot.origin == "log" and not was_at_end
        at_end = not stays and (bool(self._marked_lines) or was_at_end)
        if not stays:
            self._marked_lines, self._stays_at_line = range(0), False
        self._index = snapshot.log_index if snapshot.origin == "log" else None
        self._screen_lines = snapshot.screen_lines
        if snapshot.reason:
            self._screen_lines = tuple(text_block(snapshot.reason, self.line_cells, "warning"))
        self.show()
        if at_end:
            self.jump(self.line_count())

    def show_step(self, index: LogIndex, start: int) -> None:
        """As a step left it; start: the first byte that the step printed."""
        self._index, self._screen_lines, self._stays_at_line = index, (), False
        self._marked_lines = range(index.line_of(start), index.lines)
        self.show()
        height = max(1, self.size.height)
        self.jump(max(0, min(self._marked_lines.start - 2, index.lines - height)))

    def go_to_byte(self, byte: int) -> None:
        """Go to the line of the log, as it is shown now, that holds a byte."""
        if self._index is None:
            return
        number = self._index.line_of(byte)
        self._marked_lines, self._stays_at_line = range(number, number + 1), True
        self.show()
        self.jump(number - self.size.height // 3)


TERMINAL_POLL_SECONDS = 0.2
LOW_BANDWIDTH_POLL_SECONDS = 1.0
"""The same where little is to be written to the screen."""
TILE_POLL_SECONDS = 1.0
"""How often the terminals that do not have the keys are looked at."""
TILES_BESIDE_COLUMNS = 150
"""Columns of the pane from which on tiles lie beside the terminal with the keys, not below it."""
MIN_TERMINAL_ROWS, TILE_ROWS = 8, 6
"""Rows that the terminal with the keys keeps; rows of a tile at most, with its head."""


@runtime_checkable
class LowBandwidthApp(Protocol):
    """An app that may be asked to write little."""

    low: bool


class TerminalsPane(Pane):
    """The pane at the lower right."""

    BINDINGS = bindings_for("terminals")

    def __init__(self, home: Path, **arguments: Any) -> None:
        """home: for logs that are fetched from other machines."""
        super().__init__(**arguments)
        self.text = TerminalView(id="terminal-text")
        self.tiles = TerminalTiles(self.choose_terminal, id="terminal-tiles")
        self.source: RolloutSource | None = None
        self.names: list[tuple[str, str]] = []
        self.chosen = 0
        self._home = home
        self._spec: RolloutSpec | None = None
        self._snapshots: dict[tuple[str, str], TerminalSnapshot] = {}
        """What was read last of each terminal, by host and name."""
        self._shown = EMPTY_SNAPSHOT
        """What is shown of the one with the keys while it is followed."""
        self._is_polling = False
        self._tiles_read_at = 0.0
        self._step = 0
        """The step at the trajectory's cursor."""
        self._replayed: StepOutput | None = None
        """The step whose output is shown; None for live."""
        self._wanted_byte = -1
        """The byte of the log to go to as soon as it was read; −1 for none."""
        self._fetched, self._fetching = FetchedLogs(), False

    def compose(self) -> ComposeResult:
        """Compose the terminal with the keys, and the others."""
        yield self.text
        yield self.tiles

    def on_mount(self) -> None:
        """Look regularly; `poll` does nothing while nobody can see it."""
        self._update_titles()
        sparing = isinstance(self.app, LowBandwidthApp) and self.app.low
        self.set_interval(
            LOW_BANDWIDTH_POLL_SECONDS if sparing else TERMINAL_POLL_SECONDS, self.poll
        )

    def on_unmount(self) -> None:
        """Remove fetched logs."""
        self._fetched.close()

    def switch_rollout(self, source: RolloutSource) -> None:
        """Show another rollout; nothing of it was read yet."""
        self.source, self._spec = source, None
        self.names, self.chosen, self._snapshots, self._replayed = [], 0, {}, None
        self._wanted_byte = -1
        self._show_live(EMPTY_SNAPSHOT)
        self._arrange()
        self._update_titles()

    async def refresh_names(self) -> None:
        """Terminals that steps used, and those that have a log here already."""
        source = self.source
        if source is None:
            return
        terminals = await source.read(read_rollout_terminals(source.rollout))
        logged = terminal_log_reader.terminals_with_log(terminals.spec.host_root, source.rollout)
        names = sorted({*terminals.names, *((LOCAL_HOST, name) for name in logged)})
        if source is not self.source:
            return
        first, self._spec = self._spec is None, terminals.spec
        if first and not names:
            self._update_titles()
        if names != self.names:
            chosen = self.names[self.chosen] if self.names else None
            self.names = names
            self.chosen = names.index(chosen) if chosen in names else 0
            self._snapshots = {
                name: snapshot for name, snapshot in self._snapshots.items() if name in names
            }
            self._tiles_read_at = 0.0
            self._arrange()
            await self.poll()
            self._update_titles()

    # --- as it grows -------------------------------------------------------------------------

    @property
    def _snapshot(self) -> TerminalSnapshot:
        """What was read last of the terminal with the keys."""
        snapshot = self._snapshots.get(self.names[self.chosen]) if self.names else None
        return snapshot or EMPTY_SNAPSHOT

    def _folder_of(self, terminal: tuple[str, str]) -> Path | None:
        """Where a terminal has its log on this machine."""
        host, name = terminal
        if self.source is None or self._spec is None:
            return None
        if host != LOCAL_HOST:
            fetched = self._fetched.has(self.source.rollout, host, name)
            return self._fetched.folder_of(self.source.rollout, host, name) if fetched else None
        return terminal_log_reader.terminal_log_folder(
            self._spec.host_root, self.source.rollout, name
        )

    async def poll(self) -> None:
        """Read what is new of the terminals, when somebody can see them."""
        visible = self.size.width > 0 and self.app.screen is self.screen
        if self._is_polling or not visible or not self.names or self._spec is None:
            return
        self._is_polling = True
        try:
            has_news = await self._read_chosen(self.names[self.chosen])
            if time.monotonic() - self._tiles_read_at >= TILE_POLL_SECONDS:
                await self._read_others(self.source)
                self._tiles_read_at, has_news = time.monotonic(), True
            if has_news and self.names:
                self._update_titles()
        finally:
            self._is_polling = False

    async def _read_chosen(self, chosen: tuple[str, str]) -> bool:
        """Whether there was anything new of it."""
        source = self.source
        snapshot = await self._read(chosen)
        if source is None or not self._is_chosen(source, chosen):
            return False
        before, self._snapshots[chosen] = self._snapshot, snapshot
        if self._replayed is not None:
            return snapshot is not before
        if snapshot is self._shown or (snapshot == self._shown and not snapshot.log_index):
            return False
        self._show_live(snapshot)
        if self._wanted_byte >= 0 and snapshot.log_index is not None:
            self.text.go_to_byte(self._wanted_byte)
            self._wanted_byte = -1
        return True

    def _show_live(self, snapshot: TerminalSnapshot, at_end: bool = False) -> None:
        self._shown = snapshot
        self.text.show_live(snapshot, at_end)

    async def _read(self, terminal: tuple[str, str]) -> TerminalSnapshot:
        folder = self._folder_of(terminal)
        if folder is None:
            return TerminalSnapshot(reason=_missing_log_text(*terminal))
        before = self._snapshots.get(terminal, EMPTY_SNAPSHOT)
        return await terminal_log_reader.read_terminal(folder, before)

    async def _read_others(self, source: RolloutSource | None) -> None:
        for terminal in [name for at, name in enumerate(self.names) if at != self.chosen]:
            snapshot = await self._read(terminal)
            if source is not self.source:
                return
            self._snapshots[terminal] = snapshot

    # --- tiles and tabs ----------------------------------------------------------------------

    def on_resize(self) -> None:
        """There may be room for more of them, or less."""
        self._arrange()
        self._update_titles()

    def _arrange(self) -> None:
        """Give the other terminals what the one with the keys leaves."""
        columns, rows, others = self.size.width, self.size.height, len(self.names) - 1
        is_wide = columns >= TILES_BESIDE_COLUMNS
        room = rows if is_wide else min(rows - MIN_TERMINAL_ROWS, others * TILE_ROWS)
        self.tiles.display = others > 0 and room >= TILE_ROWS
        self.set_class(is_wide and self.tiles.display, "-beside")
        self.tiles.styles.height = room

    @property
    def _labels(self) -> list[str]:
        several = len({host for host, _ in self.names}) > 1
        return [f"{host}:{name}" if several else name for host, name in self.names]

    def choose_terminal(self, at: int) -> None:
        """Give the keys to another terminal, as by a click on its tile."""
        self.run_worker(self.action_terminal(at - self.chosen), group="choose", exclusive=True)

    def _show_tiles(self) -> None:
        labels = self._labels
        contents = [
            TileContent(at, labels[at], self._snapshots.get(name, EMPTY_SNAPSHOT))
            for at, name in enumerate(self.names)
            if at != self.chosen
        ]
        self.tiles.show_terminals(contents)

    def _update_titles(self) -> None:
        snapshots = [self._snapshots.get(name, EMPTY_SNAPSHOT) for name in self.names]
        room = max(0, self.size.width - len("3 Terminals") - 6)
        titles = tab_titles(list(zip(self._labels, snapshots, strict=True)), self.chosen, room)
        set_frame_title(self, "  ".join(["3 Terminals", *titles]))
        set_frame_subtitle(self, line(self._status_text() if self.names else ""))
        self._show_tiles()
        if self._replayed is None:
            self._update_empty_line()

    def _update_empty_line(self) -> None:
        words = " no output" if self.names else " no terminal was used yet"
        empty = (
            line(span(words, "dim"))
            if self._spec is not None or self.source is None
            else LOADING_LINE
        )
        if empty != self.text.empty:
            self.text.empty = empty
            self.text.refresh()

    def _status_text(self) -> str:
        host, log = self.names[self.chosen][0], self._snapshot.log_index
        if self._replayed is not None:
            when = f" at {local_time(self._replayed.at)[11:16]}" if self._replayed.at else ""
            size = self._replayed.end - self._replayed.start
            live = f"{_key('replay')} live"
            return f"as step {self._replayed.step} left it{when}, {size:,} bytes of it · {live}"
        lines = f" · {log.lines:,} lines" if log is not None else ""
        return f"{host} · {self._snapshot.origin}{lines}" if self._snapshot.origin else host

    async def action_terminal(self, by: int) -> None:
        """Switch to another terminal."""
        if self.names:
            self.chosen = (self.chosen + by) % len(self.names)
            self._wanted_byte = -1
            self._show_live(self._snapshot, at_end=True)
            await self.poll()
            if self._replayed is not None:
                await self._replay_step(self._step)
            self._update_titles()

    async def show_line(self, name: str, byte: int, host: str = LOCAL_HOST) -> None:
        """A line of one terminal, with what was printed before and after it; byte −1: its end."""
        if (host, name) not in self.names:
            self.show_notice(f"The log of {name} is gone.")
            return
        self.chosen, self._replayed = self.names.index((host, name)), None
        self._snapshots.pop((host, name), None)
        self._show_live(EMPTY_SNAPSHOT)
        self._wanted_byte = byte
        if self._folder_of((host, name)) is None:
            self.show_notice(_missing_log_text(host, name))
        await self.poll()

    # --- as a step left it -------------------------------------------------------------------

    def follow(self, step: int) -> None:
        """The trajectory's cursor is on another step; no key waits for what that reads."""
        moved, self._step = step != self._step, step
        if moved and self._replayed is not None:
            self.run_worker(self._replay_step(step), group="replay", exclusive=True)

    async def action_replay(self) -> None:
        """Show what the terminal showed at the step at the trajectory's cursor; again: live."""
        if self._replayed is None:
            await self._replay_step(self._step)
        else:
            self._replayed = None
            self._show_live(self._snapshot)
            self._update_titles()

    async def action_printed(self, by: int) -> None:
        """The next step that printed here, or the one before."""
        at = self._replayed.step if self._replayed else self._step + (by < 0)
        await self._replay_step(at, by)

    async def _replay_step(self, step: int, by: int = 0) -> None:
        source = self.source
        if source is None or not self.names:
            return
        host, name = terminal = self.names[self.chosen]
        try:
            output = await source.read(read_step_output(source.rollout, host, name, step, by))
        except HoustonError as problem:
            self.report_problem(problem)
            return
        if not self._is_chosen(source, terminal):
            return
        if output is None:
            side = "after" if by > 0 else "before" if by < 0 else "up to"
            self.show_notice(f"No step {side} step {step} printed in terminal {name}.")
            return
        await self._show(output, source, terminal)

    def _is_chosen(self, source: RolloutSource, terminal: tuple[str, str]) -> bool:
        """Whether a terminal still has the keys: what was read of another is not shown."""
        return source is self.source and self.names[self.chosen : self.chosen + 1] == [terminal]

    async def _show(
        self, output: StepOutput, source: RolloutSource, terminal: tuple[str, str]
    ) -> None:
        """What a terminal showed when a step was over, its own part marked."""
        host, name = terminal
        folder = self._folder_of(terminal)
        if output.rollout != source.rollout and self._spec:
            folder = terminal_log_reader.terminal_log_folder(
                self._spec.host_root, output.rollout, name
            )
        if folder is None:
            self.show_notice(_missing_log_text(host, name))
            return
        try:
            snapshot = await terminal_log_reader.read_terminal(folder, self._snapshot)
            if snapshot.log_index is None:
                self.show_notice(snapshot.reason or "Its log is gone.")
                return
            index = await asyncio.to_thread(snapshot.log_index.up_to, output.end)
            if not self._is_chosen(source, terminal):
                return
        except OSError as problem:
            self.show_notice(f"Its log cannot be read: {problem.strerror}.")
            return
        if index.end <= output.start:
            self.show_notice(f"Its log does not hold what step {output.step} printed.")
            return
        self._replayed = output
        self.text.show_step(index, output.start)
        self._update_titles()

    def action_choose(self) -> None:
        """Go to the step whose output is shown."""
        if self._replayed is not None:
            post_message_as(self, GoToStep(self._replayed.step))
        else:
            words = "shows what the terminal showed at a step; enter then goes there."
            self.show_notice(f"{_key('replay')} {words}")

    # --- the session itself, and logs elsewhere ----------------------------------------------

    def action_attach(self) -> None:
        """Look at the tmux session itself, read-only, in place of the console."""
        if not self.names or self._spec is None:
            return
        attach = attach_command(self._spec, *self.names[self.chosen])
        if attach.reason:
            self.show_notice(
                attach.reason + (f"  {attach.suggestion}" if attach.suggestion else "")
            )
            return
        environment = {name: value for name, value in os.environ.items() if name != "TMUX"}
        try:
            with self.app.suspend():
                run = subprocess.run(attach.command, env=environment, check=False)
        except (SuspendNotSupported, OSError):
            self.show_notice(f"From a shell: {shlex.join(attach.command)}")
            return
        if run.returncode:
            words = shlex.join(attach.command)
            self.show_notice(f"It could not be attached ({run.returncode}). From a shell: {words}")

    def action_fetch(self) -> None:
        """Bring the log of a terminal on another machine here, or what is new of it."""
        if not self.names or self.source is None or self._fetching:
            return
        host, name = self.names[self.chosen]
        if host == LOCAL_HOST:
            self.show_notice("This terminal's log is on this machine: all of it is shown.")
        else:
            self.show_notice(f"Its log is being fetched from {host} …", good=True)
            self.run_worker(self._fetch(self.source.rollout, host, name), group="fetch")

    async def _fetch(self, rollout: str, host: str, name: str) -> None:
        self._fetching = True
        try:
            await self._fetched.fetch(self._home, rollout, host, name)
        except HoustonError as problem:
            self.report_problem(problem)
        except OSError as problem:
            self.show_notice(f"The log could not be kept here: {problem.strerror}.")
        else:
            again = f"{_key('fetch')} again for more."
            self.show_notice(f"Fetched at {time.strftime('%H:%M:%S')}; {again}", True)
            await self.poll()
        finally:
            self._fetching = False


def _key(action: str) -> str:
    return key_label("terminals", action)


def _missing_log_text(host: str, name: str) -> str:
    if host != LOCAL_HOST:
        keys = f"{_key('fetch')} fetches it, {_key('attach')} attaches"
        return f"The log of {name} is on the host {host}, not here: {keys}."
    return "The rollout names no folder for its terminals."
