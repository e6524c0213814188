"""Arguments that several commands share: a rollout, a place, a time, `--json`, `--as`.

Also their parsers, and the messages about missing steps and archived texts. Each command's own
module says what the command does.
"""

import argparse
import re
from datetime import datetime

from houston_shared import command_output
from houston_shared.command_arguments import StepReference, whole_number
from houston_shared.errors import HoustonError, NotFound
from houston_shared.store import event_text, removed_data_queries
from houston_shared.store.rollout_queries import RolloutRow
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import now_us, pluralize

positive_int = whole_number(1)
"""A whole number from 1 on, for argparse."""


SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_since_time(text: str) -> int:
    """A time for argparse, UTC microseconds: ISO 8601 (local without an offset), or `2h` ago."""
    if ago := re.fullmatch(r"(\d{1,6})([smhd])", text):
        return now_us() - int(ago[1]) * SECONDS_PER_UNIT[ago[2]] * 1_000_000
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1_000_000)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time such as 2026-11-20T09:00, 30m, 2h or 3d"
        ) from None


def add_rollout_argument(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """`R`: a rollout's id or a unique beginning or ending of one."""
    words = "rollout: its id, or a unique beginning or ending of it"
    if optional:
        parser.add_argument("rollout", nargs="?", default="", metavar="R", help=words)
    else:
        parser.add_argument("rollout", metavar="R", help=words)


def add_run_argument(parser: argparse.ArgumentParser) -> None:
    """`RUN`: a training run's name or a unique beginning or ending of one."""
    parser.add_argument(
        "run", metavar="RUN", help="its name, or a unique beginning or ending of it (train list)"
    )


def add_place_argument(parser: argparse.ArgumentParser, steps: str = "STEP") -> None:
    """`R@STEP` and the like, to be read with `command_arguments.parse_permalink`."""
    parser.add_argument(
        "rollout",
        metavar="R",
        help="rollout: its id, or a unique beginning or ending of it; a step of it is written"
        f" R@{steps}, as the console copies it",
    )


def add_step_argument(parser: argparse.ArgumentParser, help_text: str) -> None:
    """`STEP`, where `R@STEP` does not name it."""
    parser.add_argument("step", type=positive_int, nargs="?", metavar="STEP", help=help_text)


def note_archived(reader: Reader, rollout: str) -> None:
    """Say so where a rollout's texts lie in an archive."""
    if note := reader.run(removed_data_queries.describe_archived(rollout)):
        command_output.print_note(note)


def missing_steps_text(row: RolloutRow, place: StepReference) -> HoustonError:
    """What to say where a rollout has none of the steps that were named."""
    return NotFound(
        f"{row.id} has {pluralize(row.steps, 'step')} so far: nothing is there of"
        f" {event_text.format_step_range(place.first, place.last)}.",
        "Nothing was shown.",
        f"houston steps {row.id} -n 1",
    )


def add_json_option(parser: argparse.ArgumentParser, help_text: str) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help=help_text)


def add_speaker_option(parser: argparse.ArgumentParser) -> None:
    """`--as NAME`."""
    parser.add_argument(
        "--as",
        dest="claimed",
        metavar="NAME",
        help="your name where annotators share a login; it is stored and marked unverified",
    )
