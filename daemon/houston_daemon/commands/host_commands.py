"""`houston host add`, `list`, `remove`, `check`: which machines' workers may speak to the daemon.

`add` makes a key pair and writes the one file that a host needs; `check`, run on that host,
connects with it as a worker does. None of them needs a running daemon, and a running one applies
their changes at once. The keys are in `recorder.disk.host_keys`; hosts with terminals, which are
reached over SSH, are in `[hosts.NAME]` of the configuration.
"""

import argparse
import asyncio
import os
import time
from pathlib import Path

import msgspec

from houston_daemon.recorder.disk import host_keys
from houston_shared import command_output, wire
from houston_shared.command_arguments import seconds_argument
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ExitCode, HoustonError, unwritable_as_error
from houston_shared.recorder_endpoint import RecorderEndpoint, read_endpoint_file
from houston_shared.times_and_counts import iso_time, local_time

CHECK_SECONDS = 15.0


def add_host_add_arguments(parser: argparse.ArgumentParser) -> None:
    """`NAME`, `--out`, `--replace`, `--json`."""
    parser.add_argument("name", metavar="NAME", help="what you call the machine")
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="where the file for that machine is written, `-` for standard output; by default"
        " NAME.endpoint.json",
    )
    parser.add_argument(
        "--replace", action="store_true", help="create new keys; the old ones become invalid"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run_host_add(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Let a host in, and write what it is handed."""
    to_stdout = arguments.out == "-"
    file = Path(arguments.out or f"{arguments.name}.endpoint.json")
    if not to_stdout and file.exists():
        raise HoustonError(f"{file} already exists.", "No key was made.", "--out FILE")
    endpoint = host_keys.add_host(
        loaded.home, loaded.config.recorder, arguments.name, arguments.replace
    )
    if to_stdout:
        command_output.print_json_line(endpoint)
        return int(ExitCode.DONE)
    _write_secret(file, msgspec.json.encode(endpoint) + b"\n", arguments.name)
    if arguments.json:
        command_output.print_json_line({"host": arguments.name, "file": str(file.absolute())})
        return int(ExitCode.DONE)
    command_output.print_line(str(file))
    command_output.print_note(
        f"It holds a secret key: copy it to {arguments.name} for the user who runs workers there "
        f"(0600), and remove it here.\n  next: there, houston host check {file.name}"
    )
    return int(ExitCode.DONE)


def _write_secret(file: Path, data: bytes, name: str) -> None:
    with unwritable_as_error(
        file,
        f"{name} has keys that nobody was handed.",
        f"houston host add {name} --replace --out FILE",
    ):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(data)


def add_host_list_arguments(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="one JSON line per host")


def run_host_list(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Print the hosts that have keys."""
    keys = host_keys.read_host_keys(loaded.home)
    hosts = sorted(keys.hosts.items()) if keys else []
    for name, key in hosts:
        if arguments.json:
            fields = {"host": name, "public_key": key.public_key, "added": iso_time(key.added)}
            command_output.print_json_line(fields)
        else:
            added = local_time(key.added)
            command_output.print_line(f"{name:<20} key {key.public_key[:8]}…  added {added}")
    if arguments.json:
        return int(ExitCode.DONE)
    if not hosts:
        command_output.print_note("No host was added.\n  next: houston host add NAME")
    elif not loaded.config.recorder.listen:
        command_output.print_note(
            "`[recorder] listen` is not set: none of them can reach the daemon."
        )
    return int(ExitCode.DONE)


def add_host_remove_arguments(parser: argparse.ArgumentParser) -> None:
    """`NAME`, `--json`."""
    parser.add_argument("name", metavar="NAME", help="as `houston host list` shows it")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run_host_remove(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Let a host in no more."""
    host_keys.remove_host(loaded.home, arguments.name)
    if arguments.json:
        command_output.print_json_line({"host": arguments.name, "removed": True})
    else:
        command_output.print_line(f"{arguments.name} was removed: its next message is refused.")
    return int(ExitCode.DONE)


def add_host_check_arguments(parser: argparse.ArgumentParser) -> None:
    """`FILE`, `--seconds`, `--json`."""
    parser.add_argument("file", metavar="FILE", help="what `houston host add` wrote")
    parser.add_argument(
        "--seconds",
        type=seconds_argument,
        default=CHECK_SECONDS,
        help=f"wait at most this long ({CHECK_SECONDS:g})",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run_host_check(arguments: argparse.Namespace, _: LoadedConfiguration) -> int:
    """Connect as a worker does, and say something; raises HoustonError where nothing answers."""
    endpoint = read_endpoint_file(Path(arguments.file))
    connected, answered = asyncio.run(_ask_recorder(endpoint, arguments.seconds))
    if arguments.json:
        fields = {"address": endpoint.address, "connect": connected, "answer": answered}
        command_output.print_json_line(fields)
    else:
        command_output.print_line(
            f"The recorder at {endpoint.address} listens to this host: connected in "
            f"{connected:.2f} s, a message is answered in {answered * 1_000:.1f} ms."
        )
    return int(ExitCode.DONE)


async def _ask_recorder(endpoint: RecorderEndpoint, seconds: float) -> tuple[float, float]:
    """Seconds until the first answer, and of a second one. Raises HoustonError."""
    from houston_daemon.agent.recorder_client import IngestConnection

    connection = IngestConnection(endpoint)
    body = wire.encode_message(wire.Hello(rollout="", lease=0, pid=os.getpid()))
    times = [time.perf_counter()]
    try:
        async with asyncio.timeout(seconds):
            for _ in range(2):
                reply = await connection.exchange(connection.next_number(), body)
                times.append(time.perf_counter())
    except TimeoutError:
        raise HoustonError(
            f"Nothing answered at {endpoint.address} within {seconds:g} s.",
            next="Check that the daemon runs with `[recorder] listen` and that no firewall is "
            "in the way.",
        ) from None
    finally:
        await connection.close()
    if not isinstance(reply, wire.Refused) or reply.code != "UNKNOWN":
        reason = reply.reason if isinstance(reply, wire.Refused) else type(reply).__name__
        raise HoustonError(f"The recorder at {endpoint.address} refuses this host: {reason}")
    return times[1] - times[0], times[2] - times[1]
