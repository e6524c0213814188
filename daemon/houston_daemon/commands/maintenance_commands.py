"""`houston verify`, `houston repair` and `houston backup`: check, repair and copy the store.

`verify` reads every byte and exits with 65 on damage. `repair` takes the home's lock, moves damaged
events into quarantine and names every loss. `backup` makes, lists and restores checked copies while
the daemon runs, and restores what a store outside the machine holds. Only flags and printing are
here; the packages `maintenance` and `artifacts` do the work.
"""

import argparse
import os
from pathlib import Path

import msgspec

from houston_daemon.artifacts.artifact_store import ArtifactStore, is_store_url
from houston_daemon.maintenance import damage_report, durable_copy, home_backup
from houston_daemon.maintenance.home_backup import BackupManifest
from houston_daemon.maintenance.home_verification import VerificationReport, verify_home
from houston_daemon.maintenance.journal_repair import RepairLoss, RepairResult, repair_home
from houston_daemon.training.policies import policy_files
from houston_shared import command_arguments, command_output
from houston_shared.config import LoadedConfiguration, load_configuration
from houston_shared.errors import (
    Busy,
    ConfigurationError,
    Damaged,
    ExitCode,
    HoustonError,
    NotFound,
    UsageError,
)
from houston_shared.home import Home
from houston_shared.home_lock import HomeLock, HomeOwner
from houston_shared.store import step_queries
from houston_shared.times_and_counts import iso_time, now_us

REPAIR_ADVICE = "Stop the daemon, then: houston repair"


def add_verify_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own flags."""
    parser.add_argument("--json", action="store_true", help="one JSON object with all findings")


def run_verify(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Check the home; raises HoustonError when there is no database to check."""
    try:
        report = verify_home(loaded.home)
    except HoustonError as problem:
        if problem.next != "houston verify":
            raise
        raise Damaged(
            f"{damage_report.describe_damage(loaded.home, '', damage_report.UNKNOWN_SEQ)}."
            f" {problem.cause}",
            "Nothing was checked.",
            REPAIR_ADVICE,
        ) from None
    changed = policy_files.changed_policy_files(loaded.home) if report.sound else []
    if arguments.json:
        command_output.print_json_line({**msgspec.to_builtins(report), "policies": changed})
    else:
        show_verification(report, loaded.home)
        for text in changed:
            command_output.print_line(
                f"{text} Import it again from its source; do not activate it."
            )
    return int(ExitCode.DONE if report.sound and not changed else ExitCode.DAMAGED)


def _describe_journal_end(report: VerificationReport) -> str:
    """What is known about a cut end, which only the head file beside the database can show."""
    if report.vouched >= report.events:
        return "nothing is missing"
    return (
        f"nothing is missing up to event {report.vouched} (the daemon records the newest event"
        " once a second; the events after it were read and are sound)"
    )


def show_verification(report: VerificationReport, home: Home) -> None:
    """The report for people."""
    for text in damage_report.describe_findings(home, report.findings):
        command_output.print_line(text)
    for finding in report.findings:
        command_output.print_line(finding.text)
    size = f"{report.events} events with {report.bytes / 1e6:.1f} MB read"
    if report.sound:
        command_output.print_line(f"Sound: {size}; {_describe_journal_end(report)}.")
    else:
        command_output.print_note(
            f"Not sound: {size}, {len(report.findings)} findings. Nothing was changed."
        )
        command_output.print_note(REPAIR_ADVICE)
    if report.erased:
        command_output.print_note(
            f"The bodies of {report.erased} events were erased; the rest of them is sound."
        )
    for loss in report.losses:
        owner = loss.rollout or "daemon, or nobody knows whose"
        command_output.print_note(
            f"Known: {owner}: {step_queries.describe_repair_loss(loss)}; this is no new damage."
        )


def add_repair_arguments(parser: argparse.ArgumentParser) -> None:
    """`--from-backup`, `--json`."""
    parser.add_argument(
        "--from-backup",
        metavar="NAME|DIR",
        type=Path,
        help="also take what fits from this backup (the home's own are always searched), and what"
        " an earlier repair set aside",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run_repair(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Repair the home; raises HoustonError when its daemon runs, or when it cannot be done."""
    lock = _take_home_lock(loaded.home, "repaired")
    try:
        result = repair_home(loaded.home, arguments.from_backup)
    finally:
        lock.release()
    if arguments.json:
        command_output.print_json_line(result)
    else:
        _show_repair(result)
    return int(ExitCode.DONE)


def _take_home_lock(home: Home, operation: str) -> HomeLock:
    """The home's lock, taken; raises HoustonError (75) while a daemon holds it."""
    if not home.path.is_dir():
        raise NotFound(f"There is no home {home.path}.", "Nothing was done.")
    lock = HomeLock(home)
    holder = lock.take(HomeOwner(os.getpid(), iso_time(now_us())), f"It was not {operation}.")
    if holder:
        raise Busy(
            f"A daemon (pid {holder.pid}) runs on {home.path}.",
            f"It was not {operation}.",
            "houston daemon stop",
        )
    return lock


def _show_repair(result: RepairResult) -> None:
    for loss in result.stays:
        command_output.print_note(
            f"{_lost_events(loss)} remain set aside: {loss.why}. They are kept in `damaged/`."
        )
    if not result.changed:
        command_output.print_line("Sound: there is nothing to repair.")
        return
    for rollout, seqs in result.returned.items():
        events_text = _lost_events(RepairLoss(rollout, seqs, ""))
        command_output.print_line(f"{events_text} restored; an earlier repair had set this aside.")
    for text in result.mended:
        command_output.print_line(text)
    for loss in result.losses:
        command_output.print_line(f"{_lost_events(loss)} set aside: {loss.why}.")
    for rollout, step in result.paused.items():
        where = "no step of it is lost" if step < 0 else f"it continues after step {step}"
        command_output.print_line(
            f"{rollout} is paused by repair; {where}. next: houston rollout resume {rollout}"
        )
    if any(step >= 0 for step in result.paused.values()):
        command_output.print_note(
            "Workspaces were not changed: they may be ahead of the step after which"
            " their rollout continues."
        )
    command_output.print_line(f"The home is sound again, up to event {result.seq}.")
    command_output.print_note(f"The original files and everything set aside are in {result.copies}")


def _lost_events(loss: RepairLoss) -> str:
    first, last = loss.seqs[0], loss.seqs[-1]
    events_text = (
        f"event {first}" if first == last else f"{len(loss.seqs)} events of {first} to {last}"
    )
    return f"{loss.rollout or 'unknown rollout or daemon'}: {events_text}"


def add_backup_arguments(parser: argparse.ArgumentParser) -> None:
    """`--out`, `--list`, `--restore`, `--until`, `--take-over`, `--periodic`, `--json`."""
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        help="make the backup in this folder; with --list: look there",
    )
    parser.add_argument("--list", action="store_true", help="list the existing backups")
    parser.add_argument(
        "--restore",
        metavar="NAME|DIR|URL",
        help="restore the home, which must be empty, from this backup or from a store",
    )
    parser.add_argument(
        "--until",
        type=command_arguments.whole_number(1),
        default=0,
        metavar="EVENT",
        help="with --restore URL: up to this event only",
    )
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="from now on this home writes to the store, and the previous one does not: with"
        " --restore URL, or alone for `artifacts.url`",
    )
    parser.add_argument(
        "--periodic",
        action="store_true",
        help="one of a series, of which the newest `[backup] keep` are kept",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per backup")


def run_backup(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Make, list or restore; raises HoustonError."""
    if arguments.list:
        _list_backups(arguments, loaded.home)
    elif arguments.restore and is_store_url(arguments.restore):
        _restore_from_store(arguments, loaded)
    elif arguments.until or (arguments.restore and arguments.take_over):
        raise UsageError(
            "--until and --take-over are for a store: --restore takes its URL then.",
            "Nothing was done.",
            "houston backup --restore s3://bucket/prefix --take-over",
        )
    elif arguments.restore:
        folder = home_backup.find_one_backup(loaded.home, Path(arguments.restore))
        _restore_backup(arguments, folder, loaded.home)
    elif arguments.take_over:
        _take_over(loaded)
    else:
        _make_backup(arguments, loaded)
    return int(ExitCode.DONE)


def _list_backups(arguments: argparse.Namespace, home: Home) -> None:
    folder = arguments.out or home.backups
    home_backup.check_readable(folder)
    backups = home_backup.list_backups(home, arguments.out)
    if not backups and not arguments.json:
        command_output.print_note("There is no backup. next: houston backup")
    for path in durable_copy.find_unfinished_copies(folder, home_backup.UNFINISHED_BACKUPS):
        command_output.print_note(f"{path} was cut short; the next backup there removes it.")
    for name in home_backup.list_corrupt_backups(folder):
        command_output.print_note(_rotten_warning(folder / name))
    for backup in backups:
        _say_backup(backup, arguments.json, _backup_row(backup))


def _restore_from_store(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> None:
    from houston_daemon.artifacts import artifact_copier, home_restore, store_owner

    store, home = ArtifactStore(arguments.restore), loaded.home
    fetched = home_restore.fetch_backup(store, home, arguments.until)
    _restore_backup(arguments, home.backups / fetched.name, home, store.url)
    if arguments.take_over:
        owner = artifact_copier.take_over(store, home, store_owner.this_host())
        command_output.print_note(
            f"{store.url} is written by this home now (owner {owner.number})."
        )
    else:
        command_output.print_note(
            f"The previous home still writes to {store.url}. Once it is gone for good: houston"
            f" backup --take-over --home {home.path}"
        )
    named = load_configuration(str(home.path), loaded.file)
    if named.config.artifacts.url.rstrip("/") != store.url:
        command_output.print_note(
            f"Workspaces are fetched from there once {named.source} has: [artifacts] url ="
            f' "{store.url}"'
        )


def _take_over(loaded: LoadedConfiguration) -> None:
    from houston_daemon.artifacts import artifact_copier, store_owner

    if not loaded.config.artifacts.url:
        raise ConfigurationError(
            f"{loaded.source} names no store.",
            "Nothing was taken over.",
            'Set `url = "s3://bucket/prefix"` under [artifacts].',
        )
    store = ArtifactStore(loaded.config.artifacts.url)
    owner = artifact_copier.take_over(store, loaded.home, store_owner.this_host())
    command_output.print_line(f"{store.url} is written by this home (owner {owner.number}).")


def _restore_backup(
    arguments: argparse.Namespace, folder: Path, home: Home, store: str = ""
) -> None:
    backup, paused = home_backup.restore_backup(folder, home, store)
    restored = f"{home.path} is as it was at {backup.at}, to event {backup.seq}."
    _say_backup(backup, arguments.json, f"{restored} next: houston daemon start --home {home.path}")
    if paused:
        command_output.print_note(
            f"{', '.join(paused)}: paused by restore, because {backup.home} may still run them;"
            f" cancel them there first. next: houston rollout resume R --home {home.path}"
        )
        command_output.print_note(
            "To see what each one lacks on this machine: houston rollout list"
        )


def _make_backup(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> None:
    parent = arguments.out.absolute() if arguments.out else loaded.home.backups
    backup = home_backup.make_backup(loaded.home, parent, arguments.periodic)
    place = parent / backup.name
    _say_backup(
        backup,
        arguments.json,
        f"{place}: event {backup.seq}, {backup.bytes / 1e6:.1f} MB, checked.",
    )
    if not arguments.periodic:
        return
    pruned = home_backup.prune_backups(parent, backup, loaded.config.backup.keep)
    for name in pruned.removed:
        command_output.print_note(f"removed the old backup {name}")
    for name in pruned.corrupt:
        command_output.print_note(_rotten_warning(parent / name))


def _rotten_warning(folder: Path) -> str:
    return f"{folder} is no backup any more: its files have changed since it was made. Remove it."


def _say_backup(backup: BackupManifest, as_json: bool, text: str) -> None:
    if as_json:
        command_output.print_json_line(backup)
    else:
        command_output.print_line(text)


def _backup_row(backup: BackupManifest) -> str:
    kind = "periodic" if backup.periodic else "by hand"
    return f"{backup.name}  {backup.at}  event {backup.seq}  {backup.bytes / 1e6:.1f} MB  {kind}"
