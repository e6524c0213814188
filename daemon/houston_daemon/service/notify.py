"""Tell systemd how the daemon stands, where systemd started it (sd_notify(3)); else do nothing."""

import os
import socket

from houston_daemon.service.log import LOGGER


def watchdog_seconds() -> float | None:
    """How often systemd wants to hear from us (half its limit), None when it does not."""
    limit = os.environ.get("WATCHDOG_USEC", "")
    return int(limit) / 2_000_000 if limit.isdigit() else None


def notify(state: str) -> None:
    """Send `READY=1`, `STOPPING=1`, `WATCHDOG=1`, …"""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.sendto(state.encode(), address)
    except OSError as problem:
        LOGGER.warning("systemd could not be told %s: %s", state, problem)
