"""`houston host-serve`: what another node starts here over SSH, for its rollouts' part of this
machine. It speaks its own protocol on standard input and output, and keeps no home.
"""

import argparse
import asyncio
import contextlib
import sys

from houston_daemon.environments.workstation import remote_documents, remote_file_actions
from houston_daemon.hosts.ssh.far import serve
from houston_daemon.hosts.ssh.serving import Serving
from houston_shared.clean_log import clean_root
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError

SERVICES = {
    remote_file_actions.SERVICE: remote_file_actions.serve,
    remote_documents.SERVICE: remote_documents.serve,
}
"""What workstations ask of this machine beyond the host itself."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """It has none: what to do comes over standard input."""


def run(_: argparse.Namespace, __: Loaded) -> int:
    """Serve until standard input ends."""
    if sys.stdin.isatty():
        raise HoustonError(
            "host-serve is started by another node over SSH.",
            next="Name this machine as [hosts.NAME] in the houston.toml of that node.",
            code=ExitCode.USAGE,
        )
    clean_root("%(asctime)s %(levelname)s %(name)s: %(message)s")
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(serve(Serving(SERVICES)))
    return int(ExitCode.DONE)
