"""`houston experiment RECIPE`: what guidance and masks are worth, measured, with its report."""

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

from houston_daemon.training.experiment import conduct, recipe, report
from houston_daemon.training.experiment.run import other_recipe, prepare, require
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode
from houston_shared.flags import whole


def arguments(parser: argparse.ArgumentParser) -> None:
    """`RECIPE`, `--out`, `--only`, `--seeds`, `--resume`, `--report`."""
    known = ", ".join(recipe.packaged())
    parser.add_argument("recipe", metavar="FILE", help=f"recipe, or one of {known}")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder of the run, with a home of its own (experiments/NAME here)",
    )
    parser.add_argument(
        "--only", nargs="+", choices=recipe.ARMS, default=[], metavar="ARM", help="some arms only"
    )
    parser.add_argument(
        "--seeds", type=whole(1, 100), metavar="N", help="train and measure with N seeds"
    )
    parser.add_argument("--resume", action="store_true", help="go on with what lies in DIR")
    parser.add_argument("--report", action="store_true", help="only write the report again")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Run what is not done yet, and say where the report is."""
    file = recipe.find(arguments.recipe)
    folder = (arguments.out or Path("experiments") / recipe.read(file).name).absolute()
    if arguments.report:
        require(folder)
    else:
        prepare(file, folder, arguments.resume, sys.argv[1:])
    if other_recipe(file, folder):
        out.note(f"{file} differs from the recipe that {folder} keeps: the kept one counts.")
    opened = conduct.opened(folder, out.note, arguments.seeds)
    signal.signal(signal.SIGTERM, _end)  # as Ctrl-C: the daemon is stopped, the rest is resumed
    if arguments.report:
        out.line(report.write(opened))
    else:
        out.line(conduct.conduct(opened, arguments.only))
    return int(ExitCode.DONE)


def _end(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
