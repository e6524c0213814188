"""Options that several reading commands share."""

import argparse
import re
from datetime import datetime

from houston_shared.clock import now_us
from houston_shared.errors import HoustonError
from houston_shared.flags import whole
from houston_shared.permalink import Place
from houston_shared.store import told
from houston_shared.store.queries.rollouts import Rollout

positive = whole(1)
"""A whole number from 1 on, for argparse."""


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def since(text: str) -> int:
    """A time for argparse, UTC microseconds: ISO 8601 (local without an offset), or `2h` ago."""
    if ago := re.fullmatch(r"(\d{1,6})([smhd])", text):
        return now_us() - int(ago[1]) * _SECONDS[ago[2]] * 1_000_000
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1_000_000)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time such as 2026-11-20T09:00, 30m, 2h or 3d"
        ) from None


def rollout(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """`R`: a rollout's id or a unique beginning or ending of one."""
    said = "rollout: its id, or a unique beginning or ending of it"
    if optional:
        parser.add_argument("rollout", nargs="?", default="", metavar="R", help=said)
    else:
        parser.add_argument("rollout", metavar="R", help=said)


def place(parser: argparse.ArgumentParser, steps: str = "STEP") -> None:
    """`R@STEP` and the like, to be read with `permalink.split`."""
    parser.add_argument(
        "rollout",
        metavar="R",
        help="rollout: its id, or a unique beginning or ending of it; a step of it is written"
        f" R@{steps}, as the console copies it",
    )


def not_there(row: Rollout, place: Place) -> HoustonError:
    """What to say where a rollout has none of the steps that were named."""
    return HoustonError(
        f"{row.id} has {told.many(row.steps)} so far: nothing is there of"
        f" {told.steps(place.first, place.last)}.",
        "Nothing was shown.",
        f"houston steps {row.id} -n 1",
    )


def as_json(parser: argparse.ArgumentParser, what: str) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help=what)


def speaker(parser: argparse.ArgumentParser) -> None:
    """`--as NAME`."""
    parser.add_argument(
        "--as",
        dest="claimed",
        metavar="NAME",
        help="name to speak under where annotators share a login; kept, and marked unverified",
    )
