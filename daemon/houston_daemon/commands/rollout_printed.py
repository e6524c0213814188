"""`houston rollout printed R TERMINAL --host H --into FILE`: what a terminal on another machine
printed, byte for byte. `houston steps --printed` asks for it; here, logs lie in the host root.
"""

import argparse
import asyncio
from pathlib import Path
from typing import IO

from houston_daemon.hosts.errors import HostAway
from houston_daemon.hosts.ssh import visit
from houston_daemon.hosts.ssh.there import There, there
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.flags import whole
from houston_shared.store.plan import Plan
from houston_shared.store.queries import rollouts
from houston_shared.store.reader import Reader

NOTHING = "Nothing was read."


def arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `TERMINAL`, `--host`, `--from`, `--to`, `--into`."""
    parser.add_argument("rollout", metavar="R", help="rollout")
    parser.add_argument("terminal", metavar="TERMINAL", help="its name")
    parser.add_argument("--host", required=True, metavar="H", help="the machine it is on")
    parser.add_argument(
        "--from", dest="start", type=whole(0), default=0, metavar="BYTE", help="first byte (0)"
    )
    parser.add_argument(
        "--to", dest="end", type=whole(0), default=2**62, metavar="BYTE", help="up to (the end)"
    )
    parser.add_argument("--into", required=True, metavar="FILE", help="a new file")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Write the file."""
    with Reader(loaded.home) as reader:
        rollout, place = reader.run(_place(arguments))
    into = Path(arguments.into)
    try:
        with into.open("xb") as file:
            try:
                asyncio.run(_read(place, rollout, arguments, file))
            except BaseException:
                into.unlink()  # a part of it would pass for all, and be in the next try's way
                raise
    except OSError as problem:
        raise HoustonError(
            f"{arguments.into} cannot be written: {problem.strerror}.", NOTHING
        ) from None
    except HostAway as away:
        raise HoustonError(away.cause, NOTHING, "houston doctor", ExitCode.BUSY) from None
    return int(ExitCode.DONE)


def _place(arguments: argparse.Namespace) -> Plan[tuple[str, There]]:
    one = yield from rollouts.rollout(arguments.rollout)
    spec = yield from rollouts.spec(one)
    if arguments.host not in spec.hosts:
        names = ", ".join(sorted(spec.hosts)) or "none"
        raise HoustonError(
            f"{one.id} has no terminals on {arguments.host!r}; its other machines: {names}.",
            NOTHING,
            code=ExitCode.USAGE,
        )
    return one.id, there(spec, arguments.host)


async def _read(place: There, rollout: str, arguments: argparse.Namespace, file: IO[bytes]) -> None:
    parts = visit.log(place, rollout, arguments.terminal, arguments.start, arguments.end)
    async for part in parts:
        await asyncio.to_thread(file.write, part)
