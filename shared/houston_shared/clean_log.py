"""Log lines without secrets: the formatter that every process of the daemon logs through.

What does not come through `logging` (an interpreter that crashes, an engine's own output) is not
its business.
"""

import logging

from houston_shared.secret_values import redact


class CleanFormatter(logging.Formatter):
    """A formatter whose whole line, traces included, went through `redact`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return redact(super().format(record))


def clean_root(format: str) -> None:
    """Begin logging to stderr at INFO, as `logging.basicConfig` does, without secrets."""
    handler = logging.StreamHandler()
    handler.setFormatter(CleanFormatter(format))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
