"""`houston claim R` and `houston hand-over R [NAME]`: who looks after a rollout, and notes that go
with it.

A claim binds nobody; it is shown to all. A hand-over lets a rollout go with a note, for one person
or for anybody, and says whether the note was read.
"""

import argparse
import uuid

from houston_console.commands import command_options, daemon_requests, person_names
from houston_console.commands.output_page import OutputPage, OutputSpan, span
from houston_console.commands.rollout_summary import cut_text
from houston_shared import command_output
from houston_shared.config import LoadedConfiguration
from houston_shared.control_messages import ClaimRollout, ReadNote
from houston_shared.errors import ExitCode, HoustonError, UsageError
from houston_shared.store import json_views, presence_queries
from houston_shared.store.presence_queries import ClaimStatus, current_person
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import local_time


def add_claim_arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--note`, `--release`, `--as`, `--json`."""
    command_options.add_rollout_argument(parser)
    parser.add_argument(
        "--note",
        default="",
        metavar="TEXT",
        help="for the next person; stays until another note is left",
    )
    parser.add_argument("--release", action="store_true", help="stop looking after it")
    command_options.add_speaker_option(parser)
    command_options.add_json_option(parser, "one JSON object")


def run_claim(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Claim or release; says who held it before, and what they left."""
    reader = Reader(loaded.home)
    rollout = daemon_requests.resolve_rollout(reader, arguments.rollout).id
    before = reader.run(presence_queries.find_claim(rollout))
    message = ClaimRollout(
        request=uuid.uuid4().hex,
        rollout=rollout,
        note=arguments.note,
        release=arguments.release,
        claimed=daemon_requests.claimed_name(arguments, loaded),
    )
    look = f"houston rollout show {rollout}"
    daemon_requests.send_request(loaded, message, "It may have been done.", look)
    now = reader.run(presence_queries.find_claim(rollout))
    reader.close()
    if arguments.json:
        command_output.print_json_line(
            json_views.claim_json(now or ClaimStatus(rollout, "", None, True, 0, 0))
        )
    else:
        _print_claim(rollout, before, now)
    if now and now.note:
        _mark_read(loaded, now, message.claimed)
    return int(ExitCode.DONE)


def _print_claim(rollout: str, before: ClaimStatus | None, now: ClaimStatus | None) -> None:
    holder = now.holder if now else ""
    command_output.print_line(
        f"{rollout} is held by {holder}." if holder else f"Nobody holds {rollout}."
    )
    if before and before.holder and before.holder != holder:
        command_output.print_line(f"{before.holder} held it since {local_time(before.since)}.")
    if now and now.note:
        command_output.print_line(_note_text(now))


def _note_text(claim: ClaimStatus) -> str:
    to = f" to {claim.note_to}" if claim.note_to else ""
    return f"note by {claim.note_by}{to} ({local_time(claim.note_at)}): {claim.note}"


def _mark_read(loaded: LoadedConfiguration, claim: ClaimStatus, claimed: str) -> None:
    """So that its author sees that the note was read. It was shown without a daemon, too."""
    if claim.read_by or not claim.is_note_for(current_person(claimed).name):
        return
    from houston_shared.control_client import ControlClient  # zmq: 40 ms, after all is shown

    command_output.flush_stdout()
    try:
        with ControlClient(loaded.home) as client:
            client.ask(ReadNote(rollout=claim.rollout, note=claim.note_seq, claimed=claimed))
    except HoustonError as problem:
        command_output.print_note(f"It was not recorded that you read it: {problem.cause}")


def add_hand_over_arguments(parser: argparse.ArgumentParser) -> None:
    """`[R] [NAME]`, `--note`, `--yes`, `--as`, `--json`."""
    command_options.add_rollout_argument(parser, optional=True)
    parser.add_argument(
        "to",
        nargs="?",
        default="",
        metavar="NAME",
        help="who should look after it; default: anybody",
    )
    parser.add_argument(
        "--note",
        default="",
        metavar="TEXT",
        help="what they should know. Without it: show the note, and whether it was read",
    )
    parser.add_argument(
        "--yes", action="store_true", help="accept NAME as typed, although nobody has it"
    )
    command_options.add_speaker_option(parser)
    command_options.add_json_option(
        parser, "one JSON object as of claim; without R one line for each hand-over"
    )


def run_hand_over(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Hand a rollout over, or show what was handed over."""
    if arguments.to and not arguments.note:
        raise UsageError(
            "A hand-over says what comes next: leave a note.",
            "Nothing was handed over.",
            f"houston hand-over {arguments.rollout} {arguments.to} --note TEXT",
        )
    if arguments.note and not arguments.rollout:
        raise UsageError(
            "A note belongs to a rollout: name it.",
            "Nothing was handed over.",
            "houston hand-over R [NAME] --note TEXT",
        )
    claimed = daemon_requests.claimed_name(arguments, loaded)
    with Reader(loaded.home) as reader:
        if not arguments.rollout:
            return _list_handed_over(reader, arguments, current_person(claimed).name)
        rollout = daemon_requests.resolve_rollout(reader, arguments.rollout).id
        if arguments.note:
            is_known = _send_hand_over(reader, arguments, loaded, rollout, claimed)
        now = reader.run(presence_queries.find_claim(rollout))
    if arguments.json:
        line = now or ClaimStatus(rollout, "", None, True, 0, 0)
        command_output.print_json_line(json_views.claim_json(line))
    elif arguments.note:
        command_output.print_line(f"{rollout} is handed over to {arguments.to or 'anybody'}.")
        if arguments.to and not is_known:
            command_output.print_note(
                f"{arguments.to} was never here: the note is seen with --as {arguments.to}, or"
                " under that login."
            )
    elif now and now.note:
        command_output.print_line(_note_text(now))
        command_output.print_line(_standing_text(now))
    else:
        command_output.print_note(
            f"No note was left at {rollout}.\n  next: houston hand-over {rollout} NAME --note TEXT"
        )
    if now and not arguments.note:
        _mark_read(loaded, now, claimed)
    return int(ExitCode.DONE)


def _send_hand_over(
    reader: Reader,
    arguments: argparse.Namespace,
    loaded: LoadedConfiguration,
    rollout: str,
    claimed: str,
) -> bool:
    """Hand over; whether who it is for was ever here. Raises HoustonError."""
    is_known = bool(arguments.to) and (
        arguments.yes
        or person_names.confirm_name(
            reader,
            arguments.to,
            "Nothing was handed over.",
            f"the same with the right name, or with --yes for {arguments.to}",
        )
    )
    message = ClaimRollout(
        request=uuid.uuid4().hex,
        rollout=rollout,
        note=arguments.note,
        to=arguments.to,
        release=True,
        claimed=claimed,
    )
    look = f"houston hand-over {rollout}"
    daemon_requests.send_request(loaded, message, "It may have been handed over.", look)
    return is_known


def _standing_text(claim: ClaimStatus) -> str:
    """Whether the note was read, and whether somebody has taken the rollout."""
    read = f"read by {claim.read_by} ({local_time(claim.read_at)})" if claim.read_by else "unread"
    if claim.holder:
        return f"{read}; {claim.holder} has looked after it since {local_time(claim.since)}"
    return f"{read}; nobody has taken it: houston claim {claim.rollout}"


def _list_handed_over(reader: Reader, arguments: argparse.Namespace, person: str) -> int:
    claims = reader.run(presence_queries.list_claims())
    handed = sorted(
        (claim for claim in claims.values() if claim.is_handed_over),
        key=lambda claim: -claim.note_at,
    )
    if arguments.json:
        for claim in handed:
            command_output.print_json_line(json_views.claim_json(claim))
    elif handed:
        titles = ("rollout", "by", "to", "when", "read", "note")
        OutputPage().table(titles, [_handover_row(claim, person) for claim in handed])
    else:
        command_output.print_note(
            "No hand-over waits to be claimed.\n  next: houston hand-over R NAME --note TEXT"
        )
    return int(ExitCode.DONE)


LISTED_NOTE_CHARACTERS = 60
"""Characters of a note in the list; `houston hand-over R` has all of it."""


def _handover_row(claim: ClaimStatus, person: str) -> tuple[OutputSpan, ...]:
    is_mine = claim.note_to == person
    unread = "bad" if claim.is_note_for(person) else "dim"
    return (
        span(claim.rollout, "name"),
        span("you" if claim.note_by == person else claim.note_by),
        span("you" if is_mine else claim.note_to or "anybody", "person" if is_mine else ""),
        span(local_time(claim.note_at), "dim"),
        span(claim.read_by or "unread", "" if claim.read_by else unread),
        span(cut_text(claim.note, LISTED_NOTE_CHARACTERS)),
    )
