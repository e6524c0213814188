"""`houston policy tiny`: makes a small model that writes words, for the suites of words.

torch is imported inside the function, since it takes seconds. The work is `suites.tiny_policy`.
"""

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from houston_daemon.suites.suite_catalog import words_suite_name
from houston_daemon.suites.word_worlds import LEVELS
from houston_shared import command_output
from houston_shared.command_arguments import whole_number
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ExitCode, HoustonError, UsageError

PARAMETERS, PASSES = 1_800_000, 12


def parse_share(text: str) -> float:
    """An argument between 0 and 1."""
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def add_policy_tiny_arguments(parser: argparse.ArgumentParser) -> None:
    """`--out`, how large it is, what its traces are, `--seed`, `--json`."""
    parser.add_argument(
        "--out", required=True, type=Path, metavar="DIR", help="new or empty folder for the model"
    )
    parser.add_argument(
        "--parameters",
        type=whole_number(100_000, 20_000_000),
        default=PARAMETERS,
        metavar="N",
        help=f"approximate size ({PARAMETERS:,})",
    )
    parser.add_argument(
        "--warm-up",
        type=whole_number(32, 100_000),
        metavar="N",
        help="scripted traces to start with (1,200; in errands 2,000)",
    )
    parser.add_argument(
        "--passes",
        type=whole_number(1, 1_000),
        default=PASSES,
        metavar="N",
        help=f"at most N passes over them ({PASSES})",
    )
    parser.add_argument(
        "--level", choices=tuple(LEVELS), default="medium", help="level of their worlds (medium)"
    )
    parser.add_argument(
        "--wrong",
        type=parse_share,
        help="how often a trace chooses a wrong box (0.8; in errands 0.4)",
    )
    parser.add_argument(
        "--seed", type=whole_number(), default=0, help="seed of all that is random (0)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run_policy_tiny(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Make it and say how to use it."""
    folder = arguments.out.absolute()
    check_new_folder(folder)
    # Threads that spin while they wait for each other take the cores from everybody else's.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        from houston_daemon.suites.tiny_policy import TinyRecipe, make_tiny_policy
    except ImportError as problem:
        raise HoustonError(
            f"Making a model needs torch and transformers: {problem}.",
            "Nothing was made.",
            "pip install 'houston-agents[local]'",
            ExitCode.CONFIGURATION,
        ) from None
    recipe = TinyRecipe(
        parameters=arguments.parameters,
        traces=arguments.warm_up,
        epochs=arguments.passes,
        level=arguments.level,
        wrong=arguments.wrong,
        seed=arguments.seed,
    )
    with _told_when_ended(folder):
        figures = make_tiny_policy(folder, recipe, command_output.print_note)
    if arguments.json:
        command_output.print_json_line({"out": str(folder), **figures})
        return int(ExitCode.DONE)
    command_output.print_line(
        f"{folder}: {figures['parameters']:,} parameters, solves {figures['success']:.0%} of "
        f"{figures['worlds']} validation worlds, {figures['seconds']:.0f} s"
    )
    command_output.print_note(
        f'next: in houston.toml [engines.tiny] kind = "embedded", model = "{folder}", '
        'dialect = "words"; then houston suite run '
        f"{words_suite_name(LEVELS[arguments.level])} --engine tiny"
    )
    return int(ExitCode.DONE)


@contextlib.contextmanager
def _told_when_ended(folder: Path) -> Iterator[None]:
    """Around making a folder: SIGTERM ends it as Ctrl-C does, so that what was begun is removed,
    and it is said that nothing was made."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        command_output.print_note(f"\nStopped: {folder} was not made.")
        raise


def check_new_folder(folder: Path) -> None:
    """Raise HoustonError where something is in the way of a new folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"{folder} exists and is not an empty folder.",
            "Nothing was made.",
            "Name a new folder: --out",
        )
