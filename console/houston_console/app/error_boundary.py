"""A fault in one pane stays in that pane: it is shown there and logged, the rest goes on.

Textual ends the program for any exception. `ErrorBoundary` catches what a widget raises while it
draws or handles a message and hands it to the app, which shows it in the message row and keeps
the traceback in a log (`ErrorLog`). Expected errors (`HoustonError`) go another way:
`screens.base_screen.Pane.reporting_errors`.
"""

import logging
import traceback
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from textual.geometry import Region
from textual.message import Message
from textual.message_pump import MessagePump
from textual.strip import Strip
from textual.widget import Widget

from houston_console.widgets.styled_text import blank_strip, palette_for_theme, text_block
from houston_shared.redacted_logging import RedactingFormatter
from houston_shared.safe_text import safe

_MAX_LOG_BYTES = 1 << 20
"""Size at which the log is begun anew; the one before is kept."""
_OWN_PACKAGE_PREFIX = "houston_"


@runtime_checkable
class FaultReceiver(Protocol):
    """An app that goes on when one of its parts fails."""

    def report_fault(self, part: object, error: BaseException) -> str:
        """Log and show what a part raised; returns a line that says what and where."""
        ...


class ErrorBoundary(MessagePump):
    """Mixed in before a widget, a screen or the app: what it raises does not end the program."""

    is_dispatching = False
    """Whether a message is being handled: keys wait for that."""

    async def _dispatch_message(self, message: Message) -> None:
        self.is_dispatching = True
        try:
            await super()._dispatch_message(message)
        except Exception as error:  # noqa: BLE001 shown and logged, whatever it is
            _report_fault(self, error)
        finally:
            self.is_dispatching = False


if TYPE_CHECKING:
    _Drawn = Widget
else:
    _Drawn = object
    """No widget: Textual takes styles and keys from the first base that is one."""


class PaneBoundary(ErrorBoundary, _Drawn):
    """The same for a widget that draws lines: the fault stands where its lines would be."""

    _shows_fault = False

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines of `crop`, or what was wrong with them."""
        try:
            strips = super().render_lines(crop)
        except Exception as error:  # noqa: BLE001 shown and logged, whatever it is
            self._shows_fault = True
            return self._fault_lines(_report_fault(self, error), crop)
        if self._shows_fault:  # it may still stand in lines that are not drawn now
            self._shows_fault = False
            self.refresh()
        return strips

    def _fault_lines(self, fault: str, crop: Region) -> list[Strip]:
        width, base = self.size.width, self.rich_style
        words = f"This cannot be drawn: {fault}. It is tried again with the next key or change."
        colours = palette_for_theme(self.app.current_theme, self.app.theme_variables)
        strips = [
            colours.strip(row, width, base)
            for row in text_block(safe(words), max(4, width), "error")
        ]
        strips += [blank_strip(width, base)] * (crop.bottom - len(strips))
        return [strip.crop(crop.x, crop.right) for strip in strips[crop.y : crop.bottom]]


def _report_fault(part: MessagePump, error: Exception) -> str:
    app = part.app
    if not isinstance(app, FaultReceiver):
        raise error
    return app.report_fault(part, error)


class ErrorLog:
    """The faults of one console: a file with each traceback, once for each place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.faults: list[str] = []
        """A line for each fault, in their order; the same again where it came again."""
        self._logged: set[str] = set()

    def add(self, part: object, error: BaseException) -> str:
        """Keep a fault; returns the line that names it. Raises OSError where it cannot be kept."""
        name = f"{type(part).__name__}: {type(error).__name__} in {_fault_location(error)}"
        self.faults.append(name)
        if name not in self._logged:
            self._logged.add(name)
            self._write(name, error)
        return name

    def _write(self, name: str, error: BaseException) -> None:
        handler = RotatingFileHandler(self.path, maxBytes=_MAX_LOG_BYTES, backupCount=1)
        handler.setFormatter(RedactingFormatter("%(asctime)s %(levelname)s %(message)s"))
        try:
            text = safe(f"{name}\n" + "".join(traceback.format_exception(error)))
            record = logging.LogRecord("console", logging.ERROR, "", 0, text, None, None)
            handler.emit(record)
        finally:
            handler.close()


def _fault_location(error: BaseException) -> str:
    """The innermost line of ours that the error passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if _OWN_PACKAGE_PREFIX in frame.filename] or frames
    if not ours:
        return "an unknown place"
    path = Path(ours[-1].filename)
    return f"{path.parent.name}/{path.name}:{ours[-1].lineno}"
