"""`houston verify`: check every byte of the store; 0 when all is sound, 1 with a line a finding."""

import argparse

from houston_daemon.recorder.verify import Report, verify
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own flags."""
    parser.add_argument("--json", action="store_true", help="one JSON object with all findings")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Check the home; raises HoustonError when there is no database to check."""
    report = verify(loaded.home)
    if arguments.json:
        out.json_line(report)
    else:
        _show(report)
    return int(ExitCode.DONE if report.sound else ExitCode.FAILED)


def _show(report: Report) -> None:
    for finding in report.findings:
        out.line(finding.text)
    read = f"{report.events} events with {report.bytes / 1e6:.1f} MB read"
    if report.sound:
        out.line(f"Sound: {read}; nothing is missing up to event {report.vouched}.")
    else:
        out.note(f"Not sound: {read}, {len(report.findings)} findings.")
    if report.erased:
        out.note(
            f"The bodies of {report.erased} events were erased; what was derived from them"
            " could not be checked."
        )
