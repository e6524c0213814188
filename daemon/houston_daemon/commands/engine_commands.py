"""`houston engine check NAME`: whether rollouts can sample from an engine, line by line.

It reads the configuration and asks the engine itself; a daemon is not needed. The checks are
`service.engine_check`'s.
"""

import argparse
import asyncio

from houston_daemon.service.check_findings import print_finding
from houston_daemon.service.engine_check import CHECK_ORDER, check_engine
from houston_shared import command_output
from houston_shared.command_arguments import seconds_argument
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ExitCode
from houston_shared.secret_redaction import install_secrets

SAMPLE_SECONDS = 120.0


def add_engine_check_arguments(parser: argparse.ArgumentParser) -> None:
    """`NAME`, `--seconds`, `--json`."""
    parser.add_argument(
        "name",
        nargs="?",
        metavar="ENGINE",
        help="engine of the configuration; default: `default_engine`",
    )
    parser.add_argument(
        "--seconds",
        type=seconds_argument,
        default=SAMPLE_SECONDS,
        metavar="N",
        help=f"how long a sample may take ({SAMPLE_SECONDS:g})",
    )
    parser.add_argument("--json", action="store_true", help="one JSON line per check")


def run_engine_check(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Print what was found; exit code 1 where something fails."""
    install_secrets(loaded.config)
    name = arguments.name or loaded.config.default_engine
    findings = asyncio.run(check_engine(loaded, name, arguments.seconds))
    for finding in findings:
        print_finding(finding, arguments.json, max(map(len, CHECK_ORDER)))
    failed = [finding.name for finding in findings if finding.state == "fail"]
    if failed and not arguments.json:
        command_output.print_note(
            f"{name}: rollouts would not run well on it ({', '.join(failed)})."
        )
    return int(ExitCode.FAILED if failed else ExitCode.DONE)
