"""`houston verify`: check every byte of the store; 0 when all is sound, 65 when it is not."""

import argparse

import msgspec

from houston_daemon.recorder.disk import damage
from houston_daemon.recorder.upkeep.verify import Report, verify
from houston_daemon.training.policies import checking
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.store.queries import aside

MEND = "Stop the daemon, then: houston repair"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own flags."""
    parser.add_argument("--json", action="store_true", help="one JSON object with all findings")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Check the home; raises HoustonError when there is no database to check."""
    try:
        report = verify(loaded.home)
    except HoustonError as problem:
        if problem.next != "houston verify":
            raise
        raise HoustonError(
            f"{damage.sentence(loaded.home, '', damage.UNKNOWN)}. {problem.cause}",
            "Nothing was checked.",
            MEND,
            ExitCode.DAMAGED,
        ) from None
    changed = checking.changed(loaded.home) if report.sound else []
    if arguments.json:
        out.json_line({**msgspec.to_builtins(report), "policies": changed})
    else:
        show(report, loaded.home)
        for text in changed:
            out.line(f"{text} Import it once more from where it came; do not activate it.")
    return int(ExitCode.DONE if report.sound and not changed else ExitCode.DAMAGED)


def _end(report: Report) -> str:
    """What is known about a cut end, which only the head file beside the database can show."""
    if report.vouched >= report.events:
        return "nothing is missing"
    return (
        f"nothing is missing up to event {report.vouched} (the daemon writes down the newest event"
        " once a second; the events after it were read and are sound)"
    )


def show(report: Report, home: Home) -> None:
    """The report for people."""
    for text in damage.sentences(home, report.findings):
        out.line(text)
    for finding in report.findings:
        out.line(finding.text)
    read = f"{report.events} events with {report.bytes / 1e6:.1f} MB read"
    if report.sound:
        out.line(f"Sound: {read}; {_end(report)}.")
    else:
        out.note(f"Not sound: {read}, {len(report.findings)} findings. Nothing was changed.")
        out.note(MEND)
    if report.erased:
        out.note(
            f"The bodies of {report.erased} events were erased; what is left of them is sound."
        )
    for loss in report.losses:
        owner = loss.rollout or "daemon, or nobody knows whose"
        out.note(f"Known: {owner}: {aside.loss_said(loss)}; no damage of today.")
