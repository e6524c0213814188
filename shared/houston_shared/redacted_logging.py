"""Log lines without secrets: the formatter that every process of the daemon logs through.

A module of its own, since `logging` takes milliseconds that reading commands do not pay. What does
not come through `logging` (an interpreter that crashes, an engine's own output) is not its
business.
"""

import logging

from houston_shared.secret_redaction import redact


class RedactingFormatter(logging.Formatter):
    """A formatter whose whole line, traces included, went through `redact`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return redact(super().format(record))


def log_redacted_to_stderr(format: str) -> None:
    """Begin logging to stderr at INFO, as `logging.basicConfig` does, without secrets."""
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter(format))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
