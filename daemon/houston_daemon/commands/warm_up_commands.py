"""`houston policy warm`: a language model warmed up for a suite, so that rewards can teach it.

The work is `suites.warm_up`, which runs the rest of Houston: a daemon, rollouts, rows, training.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from houston_daemon.commands.tiny_policy_commands import check_new_folder, parse_share
from houston_daemon.engines.hub_downloads import find_model
from houston_daemon.engines.local_model import model_path
from houston_daemon.suites.imperfect_agents import AgentHabits, suite_choices
from houston_daemon.suites.suite_catalog import Suite, find_suite
from houston_daemon.suites.warm_up import WarmUpRecipe, warm_up_model
from houston_shared import command_output
from houston_shared.command_arguments import whole_number
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ExitCode, HoustonError


def add_policy_warm_arguments(parser: argparse.ArgumentParser) -> None:
    """`--suite`, `--out`, `--model`, what its traces are, `--set`, `--json`."""
    recipe = WarmUpRecipe(suite="", model="")
    habits = recipe.habits
    parser.add_argument(
        "--suite", required=True, choices=tuple(suite_choices()), help="suite whose tasks it learns"
    )
    parser.add_argument(
        "--out", required=True, type=Path, metavar="DIR", help="new or empty folder for the model"
    )
    parser.add_argument(
        "--base",
        default="",
        metavar="MODEL",
        help="model to start from, a folder or org/name@revision (the demo's model)",
    )
    parser.add_argument(
        "--traces",
        type=whole_number(8, 100_000),
        default=recipe.traces,
        metavar="N",
        help=f"rollouts of the scripted agent ({recipe.traces})",
    )
    parser.add_argument(
        "--wrong",
        type=parse_share,
        help="share of them that do not solve their task"
        f" ({_of_suites(lambda suite: suite.warm_up_wrong)})",
    )
    parser.add_argument(
        "--errors",
        type=parse_share,
        default=habits.errors,
        help=f"share of their steps after a call that fails ({habits.errors})",
    )
    parser.add_argument(
        "--worlds",
        type=whole_number(0, 10_000),
        default=recipe.worlds,
        metavar="N",
        help=f"validation tasks that it is measured on ({recipe.worlds})",
    )
    parser.add_argument(
        "--concurrency",
        type=whole_number(1, 256),
        metavar="N",
        help=f"rollouts that run together ({_of_suites(lambda suite: suite.warm_up_at_once)})",
    )
    parser.add_argument(
        "--seed", type=whole_number(), default=0, help="seed of all that is random (0)"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the SFT recipe"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def _of_suites(setting: Callable[[Suite], float]) -> str:
    """What each suite takes, for a flag's help."""
    names: dict[float, list[str]] = {}
    for name in suite_choices():
        names.setdefault(setting(find_suite(name)), []).append(name)
    return "; ".join(f"{', '.join(suites)}: {value}" for value, suites in names.items())


def run_policy_warm(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Make it and say how to use it."""
    folder = arguments.out.absolute()
    check_new_folder(folder)
    model = model_path()
    if arguments.base:
        note = command_output.print_note
        model = find_model(arguments.base, "model", loaded.home, note, "Nothing was made.")
    if model is None:
        raise HoustonError(
            "There is no model to start from.",
            "Nothing was made.",
            "houston doctor --fetch-model, or name one with --base",
            ExitCode.CONFIGURATION,
        )
    recipe = recipe_from_arguments(arguments, model)
    folder.mkdir(parents=True, exist_ok=True)
    report = warm_up_model(folder, recipe, command_output.print_note)
    if arguments.json:
        command_output.print_json_line({"out": str(folder), **report})
        return int(ExitCode.DONE)
    solved = report.get("validation", {}).get("pass@1", {}).get("value")
    success = f", solves {solved:.0%} of {recipe.worlds} validation tasks" if recipe.worlds else ""
    command_output.print_line(f"{folder}: warmed up for {recipe.suite}{success}")
    command_output.print_note(
        f'next: in houston.toml [engines.warm] kind = "embedded", model = "{folder}", '
        f'dialect = "chatml-calls"; then houston suite run {recipe.suite} --engine warm'
    )
    return int(ExitCode.DONE)


def recipe_from_arguments(arguments: argparse.Namespace, model: Path) -> WarmUpRecipe:
    """What is asked; what is not said is as the suite needs it. model: folder to begin from."""
    suite = find_suite(arguments.suite)
    wrong = suite.warm_up_wrong if arguments.wrong is None else arguments.wrong
    return WarmUpRecipe(
        suite=suite.name,
        model=str(model.absolute()),
        traces=arguments.traces,
        habits=AgentHabits(wrong, arguments.errors),
        seed=arguments.seed,
        worlds=arguments.worlds,
        at_once=arguments.concurrency or suite.warm_up_at_once,
        settings=tuple(arguments.set),
    )
