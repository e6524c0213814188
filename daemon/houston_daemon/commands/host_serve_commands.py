"""`houston host-serve`: the remote end of a host, which another node starts here over SSH.

It speaks its own protocol on standard input and output and keeps no home. It imports only what
that end needs, since every connection starts it. The protocol and both ends of it are
`hosts.ssh`.
"""

import argparse
import asyncio
import contextlib
import sys

from houston_daemon.environments.workstation import remote_documents, remote_file_actions
from houston_daemon.hosts.ssh.remote_main import serve_connection
from houston_daemon.hosts.ssh.remote_server import RemoteServer
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ExitCode, UsageError
from houston_shared.redacted_logging import log_redacted_to_stderr

HOST_SERVICES = {
    remote_file_actions.SERVICE: remote_file_actions.serve,
    remote_documents.SERVICE: remote_documents.serve,
}
"""What workstations ask of this machine beyond the host itself."""


def add_host_serve_arguments(parser: argparse.ArgumentParser) -> None:
    """It has none: what to do comes over standard input."""


def run_host_serve(_: argparse.Namespace, __: LoadedConfiguration) -> int:
    """Serve until standard input ends."""
    if sys.stdin.isatty():
        raise UsageError(
            "host-serve is started by another node over SSH.",
            next="Name this machine as [hosts.NAME] in the houston.toml of that node.",
        )
    log_redacted_to_stderr("%(asctime)s %(levelname)s %(name)s: %(message)s")
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(serve_connection(RemoteServer(HOST_SERVICES)))
    return int(ExitCode.DONE)
