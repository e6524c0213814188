"""`R… | --task NAME | --group G | --all`: the same words wherever a command takes rollouts."""

import argparse

from houston_shared.store.queries.selection import Selection


def arguments(parser: argparse.ArgumentParser, what: str = "rollouts") -> None:
    """The arguments. what: the help of `R…`."""
    parser.add_argument("rollouts", metavar="R", nargs="*", help=f"{what}, by id or a part of it")
    parser.add_argument("--task", default="", metavar="NAME", help="all rollouts of a task")
    parser.add_argument("--group", default="", metavar="G", help="all rollouts of a group")
    parser.add_argument("--all", action="store_true", help="all rollouts of the home")


def selection(arguments: argparse.Namespace) -> Selection:
    """What they were given."""
    return Selection(
        tuple(arguments.rollouts), arguments.task, arguments.group, bool(arguments.all)
    )
