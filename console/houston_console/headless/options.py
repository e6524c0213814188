"""Options that several reading commands share."""

import argparse

from houston_shared.flags import whole

positive = whole(1)
"""A whole number from 1 on, for argparse."""


def rollout(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """`R`: a rollout's id or a unique beginning or ending of one."""
    said = "rollout: its id, or a unique beginning or ending of it"
    if optional:
        parser.add_argument("rollout", nargs="?", default="", metavar="R", help=said)
    else:
        parser.add_argument("rollout", metavar="R", help=said)


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
