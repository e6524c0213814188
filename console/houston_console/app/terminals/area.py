"""Terminals of the rollout: one of them as it grows, or as a step left it.

Read-only: no key reaches a terminal from here. Looked at only while it is on the screen, at most
five times a second, and drawn only when something was printed.
"""

import asyncio
import os
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from textual.app import ComposeResult, SuspendNotSupported
from textual.containers import Vertical

from houston_console.app.drawing.frame import subtitle, title
from houston_console.app.drawing.lines import UNREAD, line, span
from houston_console.app.error_boundary import ErrorBoundary
from houston_console.app.keys import bindings
from houston_console.app.messages import Failed, GoTo, Told, say
from houston_console.app.source import RolloutSource
from houston_console.app.terminals import plans, reading
from houston_console.app.terminals.attach import way
from houston_console.app.terminals.fetching import Fetched
from houston_console.app.terminals.plans import LOCAL, Printed
from houston_console.app.terminals.reading import NOTHING, Shown
from houston_console.app.terminals.view import TerminalText
from houston_shared.clock import local as local_time
from houston_shared.errors import HoustonError
from houston_shared.records import RolloutSpec

LOOK_SECONDS = 0.2
SPARING_SECONDS = 1.0
"""The same where little is to be written to the screen."""
NAMES = 40
"""Cells of the title that names take before they are left out."""


@runtime_checkable
class Sparing(Protocol):
    """An app that may be asked to write little."""

    low: bool


class Terminals(ErrorBoundary, Vertical):
    """The area at the lower right."""

    BINDINGS = bindings("terminals")

    def __init__(self, home: Path, **arguments: Any) -> None:
        """home: for logs that are fetched from other machines."""
        super().__init__(**arguments)
        self.text = TerminalText(id="terminal-text")
        self.source: RolloutSource | None = None
        self.names: list[tuple[str, str]] = []
        self.chosen = 0
        self._home = home
        self._spec: RolloutSpec | None = None
        self._shown = NOTHING
        self._looking = False
        self._step = 0
        """The step at the trajectory's cursor."""
        self._replay: Printed | None = None
        """The step whose output is shown; None for live."""
        self._aim = -1
        """The byte of the log to go to as soon as it was read; −1 for none."""
        self._fetched, self._fetching = Fetched(), False

    def compose(self) -> ComposeResult:
        """One text."""
        yield self.text

    def on_mount(self) -> None:
        """Look regularly; `look` does nothing while nobody can see it."""
        self._dress()
        sparing = isinstance(self.app, Sparing) and self.app.low
        self.set_interval(SPARING_SECONDS if sparing else LOOK_SECONDS, self.look)

    def on_unmount(self) -> None:
        """What was fetched goes."""
        self._fetched.close()

    def turn_to(self, source: RolloutSource) -> None:
        """Show another rollout; nothing of it was read yet."""
        self.source, self._spec = source, None
        self.names, self.chosen, self._shown, self._replay = [], 0, NOTHING, None
        self.text.live(NOTHING)
        self._dress()

    async def refresh_names(self) -> None:
        """Terminals that steps used, and those that have a log here already."""
        source = self.source
        if source is None:
            return
        known = await source.read(plans.known(source.rollout))
        here = reading.with_log(known.spec.host_root, source.rollout)
        names = sorted({*known.names, *((LOCAL, name) for name in here)})
        if source is not self.source:
            return
        first, self._spec = self._spec is None, known.spec
        if first and not names:
            self._dress()
        if names != self.names:
            chosen = self.names[self.chosen] if self.names else None
            self.names = names
            self.chosen = names.index(chosen) if chosen in names else 0
            self._shown = self._shown if chosen in names else NOTHING
            await self.look()
            self._dress()

    # --- as it grows -------------------------------------------------------------------------

    @property
    def _folder(self) -> Path | None:
        """Where the chosen terminal has its log on this machine."""
        host, name = self.names[self.chosen]
        if self.source is None or self._spec is None:
            return None
        if host != LOCAL:
            fetched = self._fetched.has(self.source.rollout, host, name)
            return self._fetched.place(self.source.rollout, host, name) if fetched else None
        return reading.folder_of(self._spec.host_root, self.source.rollout, name)

    async def look(self) -> None:
        """Read what is new of the chosen terminal, when somebody can see it."""
        seen = self.size.width > 0 and self.app.screen is self.screen
        if self._looking or not seen or not self.names or self._spec is None:
            return
        self._looking = True
        try:
            await self._look(self.names[self.chosen], self._folder)
        finally:
            self._looking = False

    async def _look(self, chosen: tuple[str, str], folder: Path | None) -> None:
        if folder is None:
            found = Shown(reason=_not_here(*chosen))
        else:
            found = await reading.look(folder, self._shown, live=self._replay is None)
        if not self.names or self.names[self.chosen] != chosen or found is self._shown:
            return
        if found == self._shown and not found.log:
            return
        self._shown = found
        if self._replay is None:
            self.text.live(found)
            if self._aim >= 0 and found.log is not None:
                self.text.at_byte(self._aim)
                self._aim = -1
        self._dress()

    def _dress(self) -> None:
        several = len({host for host, _ in self.names}) > 1
        shown = [
            f"‹{_named(one, several)}›" if index == self.chosen else _named(one, several)
            for index, one in enumerate(self.names)
        ]
        while len(shown) > 2 and sum(map(len, shown)) > NAMES:
            shown.pop(0 if self.chosen > len(self.names) // 2 else -1)
        title(self, "  ".join(["3 Terminals", *shown]))
        subtitle(self, line(self._standing() if self.names else ""))
        if self._replay is None:
            self._dress_empty()

    def _dress_empty(self) -> None:
        words = " no output" if self.names else " no terminal was used yet"
        empty = (
            line(span(words, "dim")) if self._spec is not None or self.source is None else UNREAD
        )
        if empty != self.text.empty:
            self.text.empty = empty
            self.text.refresh()

    def _standing(self) -> str:
        host, log = self.names[self.chosen][0], self._shown.log
        if self._replay is not None:
            when = f" at {local_time(self._replay.at)[11:16]}" if self._replay.at else ""
            size = self._replay.end - self._replay.start
            return f"as step {self._replay.step} left it{when}, {size:,} bytes of it · s live"
        lines = f" · {log.lines:,} lines" if log is not None else ""
        return f"{host} · {self._shown.origin}{lines}" if self._shown.origin else host

    async def action_terminal(self, by: int) -> None:
        """Another terminal."""
        if self.names:
            self.chosen = (self.chosen + by) % len(self.names)
            self._shown = NOTHING
            self.text.live(NOTHING)
            await self.look()
            if self._replay is not None:
                await self._go_to(self._step)
            self._dress()

    async def show_line(self, name: str, byte: int) -> None:
        """A line of one terminal of this machine, with what was printed before and after it."""
        if (LOCAL, name) not in self.names:
            say(self, Told(f"The log of {name} is gone."))
            return
        self.chosen, self._replay, self._shown = self.names.index((LOCAL, name)), None, NOTHING
        self.text.live(NOTHING)
        self._aim = byte
        await self.look()

    # --- as a step left it -------------------------------------------------------------------

    def follow(self, step: int) -> None:
        """The trajectory's cursor is on another step; no key waits for what that reads."""
        moved, self._step = step != self._step, step
        if moved and self._replay is not None:
            self.run_worker(self._go_to(step), group="replay", exclusive=True)

    async def action_replay(self) -> None:
        """Show what the terminal showed at the step at the trajectory's cursor; again: live."""
        if self._replay is None:
            await self._go_to(self._step)
        else:
            self._replay = None
            self.text.live(self._shown)
            self._dress()

    async def action_printed(self, by: int) -> None:
        """The next step that printed here, or the one before."""
        at = self._replay.step if self._replay else self._step + (by < 0)
        await self._go_to(at, by)

    async def _go_to(self, step: int, by: int = 0) -> None:
        source = self.source
        if source is None or not self.names:
            return
        host, name = self.names[self.chosen]
        try:
            found = await source.read(plans.printed(source.rollout, host, name, step, by))
        except HoustonError as problem:
            say(self, Failed(problem))
            return
        if source is not self.source:
            return
        if found is None:
            side = "after" if by > 0 else "before" if by < 0 else "up to"
            say(self, Told(f"No step {side} step {step} printed in terminal {name}."))
            return
        await self._show(found, host, name)

    async def _show(self, found: Printed, host: str, name: str) -> None:
        """What a terminal showed when a step was over, its own part marked."""
        folder = self._folder
        if found.rollout != (self.source.rollout if self.source else "") and self._spec:
            folder = reading.folder_of(self._spec.host_root, found.rollout, name)
        if folder is None:
            say(self, Told(_not_here(host, name)))
            return
        try:
            shown = await reading.look(folder, self._shown, live=False)
            if shown.log is None:
                say(self, Told(shown.reason or "Its log is gone."))
                return
            index = await asyncio.to_thread(shown.log.until, found.end)
        except OSError as problem:
            say(self, Told(f"Its log cannot be read: {problem.strerror}."))
            return
        if index.end <= found.start:
            say(self, Told(f"Its log does not hold what step {found.step} printed."))
            return
        self._replay = found
        self.text.at_step(index, found.start)
        self._dress()

    def action_choose(self) -> None:
        """Go to the step whose output is shown."""
        if self._replay is not None:
            say(self, GoTo(self._replay.step))
        else:
            say(self, Told("s shows what the terminal showed at a step; enter then goes there."))

    # --- the session itself, and logs elsewhere ----------------------------------------------

    def action_attach(self) -> None:
        """Look at the tmux session itself, read-only, in place of the console."""
        if not self.names or self._spec is None:
            return
        found = way(self._spec, *self.names[self.chosen])
        if found.reason:
            say(self, Told(found.reason + (f"  {found.next}" if found.next else "")))
            return
        environment = {name: value for name, value in os.environ.items() if name != "TMUX"}
        try:
            with self.app.suspend():
                done = subprocess.run(found.command, env=environment, check=False)
        except (SuspendNotSupported, OSError):
            say(self, Told(f"From a shell: {shlex.join(found.command)}"))
            return
        if done.returncode:
            words = shlex.join(found.command)
            say(self, Told(f"It could not be attached ({done.returncode}). From a shell: {words}"))

    def action_fetch(self) -> None:
        """Bring the log of a terminal on another machine here, or what is new of it."""
        if not self.names or self.source is None or self._fetching:
            return
        host, name = self.names[self.chosen]
        if host == LOCAL:
            say(self, Told("This terminal's log is on this machine: all of it is shown."))
        else:
            say(self, Told(f"Its log is being fetched from {host} …", good=True))
            self.run_worker(self._fetch(self.source.rollout, host, name), group="fetch")

    async def _fetch(self, rollout: str, host: str, name: str) -> None:
        self._fetching = True
        try:
            await self._fetched.fetch(self._home, rollout, host, name)
        except HoustonError as problem:
            say(self, Failed(problem))
        except OSError as problem:
            say(self, Told(f"The log could not be kept here: {problem.strerror}."))
        else:
            say(self, Told(f"Fetched at {time.strftime('%H:%M:%S')}; F again for more.", True))
            await self.look()
        finally:
            self._fetching = False


def _named(one: tuple[str, str], several: bool) -> str:
    host, name = one
    return f"{host}:{name}" if several else name


def _not_here(host: str, name: str) -> str:
    if host != LOCAL:
        return f"The log of {name} is on the host {host}, not here: F fetches it, t attaches."
    return "The rollout names no folder for its terminals."
