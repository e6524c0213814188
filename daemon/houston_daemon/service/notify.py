"""Tell systemd how the daemon stands, where systemd started it (sd_notify(3)); else do nothing."""

import os
import socket

from houston_daemon.service.log import LOGGER

_said: dict[str, str] = {}
"""What was said last, by variable: what has not changed is not said again."""


def watchdog_seconds() -> float | None:
    """How often systemd wants to hear from us (half its limit), None when it does not."""
    limit = os.environ.get("WATCHDOG_USEC", "")
    meant = os.environ.get("WATCHDOG_PID", str(os.getpid()))
    return int(limit) / 2_000_000 if limit.isdigit() and meant == str(os.getpid()) else None


def feed_watchdog() -> None:
    """Say that the daemon lives; only what has just proved it may call this."""
    if watchdog_seconds() is not None:
        notify("WATCHDOG=1")


def tell_systemd(assignment: str) -> None:
    """Send `STATUS=…` or the like, when it is another than last."""
    name, _, value = assignment.partition("=")
    if _said.get(name) != value:
        _said[name] = value
        notify(assignment)


def extend_timeout(seconds: float) -> None:
    """What is under way (a start, a stop) may take so much longer, from now."""
    notify(f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}")


def notify(state: str) -> None:
    """Send `READY=1`, `STOPPING=1`, …; several assignments, a line each."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.setblocking(False)  # a systemd that does not read must not hold the daemon up
            out.sendto(state.encode(), address)
    except OSError as problem:
        LOGGER.warning("systemd could not be told %s: %s", state.partition("\n")[0], problem)
