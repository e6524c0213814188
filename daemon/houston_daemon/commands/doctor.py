"""`houston doctor`: looks at this machine; fetches the model and installs vLLM when asked."""

import argparse

from houston_daemon.engines.install import install_engine
from houston_daemon.engines.model import fetch_model
from houston_daemon.service.checks import ALL
from houston_daemon.service.finding import Finding
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode


def arguments(parser: argparse.ArgumentParser) -> None:
    """`--fetch-model`, `--install-engine`, `--json`."""
    parser.add_argument("--fetch-model", action="store_true", help="fetch SmolLM2-135M (98 MB)")
    parser.add_argument("--install-engine", action="store_true", help="install vLLM (3.4 GB)")
    parser.add_argument("--json", action="store_true", help="one JSON line a check")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Fetch what was asked for, then check; exit code 1 when something required fails."""
    if arguments.fetch_model:
        fetch_model(out.note)
    if arguments.install_engine:
        install_engine(out.note)
    failed = False
    for check in ALL:
        for finding in check(loaded):
            failed |= finding.state == "fail"
            _say(finding, arguments.json)
    return int(ExitCode.FAILED if failed else ExitCode.DONE)


def _say(finding: Finding, as_json: bool) -> None:
    if as_json:
        out.json_line(
            {
                "check": finding.name,
                "state": finding.state,
                "found": finding.found,
                "next": finding.next,
            }
        )
        return
    out.line(f"{finding.state:<5}{finding.name:<12} {finding.found}")
    if finding.next:
        out.line(f"     {'':<12} next: {finding.next}")
