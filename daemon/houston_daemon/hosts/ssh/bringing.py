"""The near end's part of parcels: a folder of this machine is brought to the other one, once."""

import asyncio
import os
import secrets
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from houston_daemon.hosts.ssh import messages as m
from houston_daemon.hosts.ssh import parcels
from houston_shared.errors import HoustonError

Asking = Callable[[m.Asks, Any], Awaitable[Any]]
"""Asks the far end, and returns the answer as what the second argument says."""


async def brought(folder: Path, host: str, ask: Asking) -> str:
    """Have a folder, or a single file, on the machine `host`; the name of its parcel.

    Raises HoustonError where it cannot be read, and what `ask` raises.
    """
    try:
        name = await asyncio.to_thread(parcels.name_of, folder)
        if not await ask(m.HasParcel(name=name), bool):
            await _bring(folder, name, ask)
    except OSError as problem:
        raise unreadable(problem, host) from problem
    return name


def unreadable(problem: OSError, host: str) -> HoustonError:
    """What is said of a folder that cannot be read here."""
    what = f"{problem.filename}: {problem.strerror}" if problem.filename else str(problem)
    return HoustonError(
        f"What the rollout needs on the host {host} cannot be brought there ({what}).",
        "The rollout cannot work there without it.",
    )


async def _bring(folder: Path, name: str, ask: Asking) -> None:
    token = secrets.token_hex(8)
    with tempfile.TemporaryFile() as packed:
        await asyncio.to_thread(parcels.pack, folder, packed)
        size = packed.tell()
        packed.seek(0, os.SEEK_SET)
        at = 0
        while at < size:
            data = await asyncio.to_thread(packed.read, parcels.PIECE)
            at += len(data)
            await ask(m.Piece(name=name, token=token, data=data, last=at >= size), None)
