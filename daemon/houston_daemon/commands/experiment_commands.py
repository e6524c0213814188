"""`houston experiment RECIPE`: measures what guidance and masks are worth, and writes a report.

Makes or resumes the folder of an experiment, runs what is not done yet and prints where the report
is. Recipes, arms, statistics and the report are in the package `experiments`.
"""

import argparse
import signal
import sys
from pathlib import Path

from houston_daemon.experiments import experiment_recipe, experiment_report, run_stages
from houston_daemon.experiments.experiment_run import is_other_recipe, prepare_run, require_run
from houston_shared import command_output
from houston_shared.command_arguments import whole_number
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ExitCode


def add_experiment_arguments(parser: argparse.ArgumentParser) -> None:
    """`RECIPE`, `--out`, `--only`, `--seeds`, `--resume`, `--report`, `--json`."""
    recipes = ", ".join(experiment_recipe.packaged_recipes())
    parser.add_argument("recipe", metavar="RECIPE", help=f"recipe, or one of {recipes}")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder of the run, with its own home (experiments/NAME here)",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=experiment_recipe.ARMS,
        default=[],
        metavar="ARM",
        help="run only these arms",
    )
    parser.add_argument(
        "--seeds", type=whole_number(1, 100), metavar="N", help="train and measure with N seeds"
    )
    parser.add_argument("--resume", action="store_true", help="continue the run in DIR")
    parser.add_argument("--report", action="store_true", help="only write the report again")
    parser.add_argument("--json", action="store_true", help="one JSON object: where the report is")


def run_experiment(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Run what is not done yet, and say where the report is."""
    file = experiment_recipe.find_recipe(arguments.recipe)
    folder = (
        arguments.out or Path("experiments") / experiment_recipe.read_recipe(file).name
    ).absolute()
    if arguments.report:
        require_run(folder)
    else:
        prepare_run(file, folder, arguments.resume, sys.argv[1:])
    if is_other_recipe(file, folder):
        command_output.print_note(
            f"{file} differs from the recipe stored in {folder}: the stored one is used."
        )
    opened = run_stages.open_run(folder, command_output.print_note, arguments.seeds)
    # As Ctrl-C: the daemon is stopped, the rest is resumed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if arguments.report:
        text = experiment_report.write_report(opened)
    else:
        text = run_stages.conduct_experiment(opened, arguments.only)
    if arguments.json:
        command_output.print_json_line({"folder": str(folder), "report": text})
    else:
        command_output.print_line(text)
    return int(ExitCode.DONE)
