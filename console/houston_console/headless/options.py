"""Options that several reading commands share."""

import argparse


def rollout(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """`R`: a rollout's id or a unique beginning of one."""
    said = "rollout: its id, or a unique beginning of it"
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


def positive(text: str) -> int:
    """A whole number from 1 on, for argparse."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number
