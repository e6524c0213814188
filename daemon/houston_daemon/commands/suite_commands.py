"""`houston suite list|run`: generated tasks, and rollouts of them.

`run` drives the daemon of the home and keeps a JSON file in it, as `houston evaluate` does. The
package `suites` has tasks, runs and figures.
"""

import argparse
import time
from pathlib import Path
from typing import Any

from houston_daemon.suites import suite_results, suite_run
from houston_daemon.suites.suite_catalog import (
    DEFAULT_TASKS,
    REASONING_GYM,
    SPLITS,
    SUITES,
    base_rates,
    find_suite,
    is_suite,
    suite_tasks,
)
from houston_daemon.suites.suite_run import SuiteOrder
from houston_shared import command_output
from houston_shared.command_arguments import whole_number
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ExitCode, HoustonError, UsageError
from houston_shared.wilson_interval import wilson_interval

_MEANS = ("score", "steps", "failures", "no_action")


def add_suite_list_arguments(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="one JSON line per suite")


def run_suite_list(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """List suites with what was measured on them."""
    for suite in SUITES.values():
        rates = [rate for rate in base_rates() if rate.suite == suite.name]
        if arguments.json:
            command_output.print_json_line(
                {
                    "suite": suite.name,
                    "version": suite.version,
                    "about": suite.about,
                    "splits": list(SPLITS),
                    "steps": suite.steps,
                    "context_tokens": suite.context_tokens,
                    "dialect": suite.dialect,
                    "base_rates": [
                        {name: getattr(rate, name) for name in rate.__struct_fields__}
                        for rate in rates
                    ],
                }
            )
            continue
        command_output.print_line(
            f"{suite.name}: {suite.about}; {suite.steps} steps, {suite.context_tokens} tokens"
        )
        for rate in rates:
            share = wilson_interval(rate.solved, rate.worlds)
            command_output.print_line(
                f"  {rate.model}: {rate.solved} of {rate.worlds} of {rate.split}"
                f" [{share.low:.2f}, {share.high:.2f}]  {rate.note}".rstrip()
            )
    if not arguments.json:
        command_output.print_line(
            f"{REASONING_GYM}DATASET: questions by the package reasoning-gym; not measured"
        )
    return int(ExitCode.DONE)


def add_suite_run_arguments(parser: argparse.ArgumentParser) -> None:
    """`SUITE`, who plays it, how much of it, `--purify`, `--name`, `--json`."""
    parser.add_argument(
        "suite", metavar="SUITE", help=f"one of {', '.join(SUITES)}, or {REASONING_GYM}DATASET"
    )
    add_player_arguments(parser)
    parser.add_argument(
        "-n",
        type=whole_number(1, 100_000),
        metavar="N",
        help=f"tasks ({DEFAULT_TASKS}, or as many as there are)",
    )
    parser.add_argument(
        "--purify",
        default="",
        metavar="on|off|KEY=VALUE,…",
        help="correct failed calls ahead, as in rollout start; default: off",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object: file and figures")


def add_player_arguments(parser: argparse.ArgumentParser) -> None:
    """Who plays which tasks of a suite, how often, and what the result is called."""
    parser.add_argument(
        "--engine", metavar="ENGINE", help="engine of the configuration, or script:FILE"
    )
    parser.add_argument(
        "--policy",
        default="",
        metavar="POLICY",
        help="policy@2, or `base`; default: the active one",
    )
    parser.add_argument("--split", choices=SPLITS, default="test", help="split of its tasks (test)")
    parser.add_argument(
        "--attempts",
        type=whole_number(1, 100),
        default=1,
        metavar="K",
        help="attempts at each task (1)",
    )
    parser.add_argument(
        "--seed", type=whole_number(), default=0, help="seed of the first attempt (0)"
    )
    parser.add_argument("--name", default="", help="name of the result; default: from the time")


def run_suite_run(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Run it, keep the result, print its figures."""
    _refuse_file(arguments.suite)
    find_suite(arguments.suite)
    name = arguments.name or default_result_name()
    file = new_result_file(loaded, arguments.suite, name, "Nothing was run.")
    order = _order(arguments, loaded.config.default_engine)
    run = suite_run.run_suite(loaded, order, command_output.print_note)
    suite_results.write_run(file, run)
    figures = suite_results.run_figures(run)
    if arguments.json:
        command_output.print_json_line({"file": str(file), **figures})
    else:
        command_output.print_line(str(file))
        _print_figures(figures)
        speed = figures["episodes_per_second"]
        command_output.print_line(f"{run.seconds:.1f} s, {speed} rollouts a second")
    return int(ExitCode.DONE)


def names_file(suite: str) -> bool:
    """Whether the argument for a suite names a file."""
    return not is_suite(suite) and (bool(Path(suite).suffix) or Path(suite).is_file())


def _refuse_file(suite: str) -> None:
    """Raise HoustonError for a file, with the command that takes it."""
    if names_file(suite):
        starts = Path(suite).suffix == ".toml"
        raise UsageError(
            f"{suite} is a file, and this command plays suites.",
            "Nothing was run.",
            f"houston rollout start {suite}" if starts else f"houston evaluate {suite}",
        )


def _order(arguments: argparse.Namespace, default_engine: str) -> SuiteOrder:
    tasks = suite_tasks(arguments.suite, arguments.split)
    return SuiteOrder(
        tasks=tasks,
        worlds=tasks.resolve_task_count(arguments.n),
        attempts=arguments.attempts,
        engine=arguments.engine or default_engine,
        policy=arguments.policy,
        seed=arguments.seed,
        purify=arguments.purify,
    )


def _print_figures(figures: dict[str, Any]) -> None:
    names = [name for name in figures if name.startswith("pass@")]
    for line in suite_results.figure_lines(figures, [*names, *_MEANS]):
        command_output.print_line(line)


def default_result_name() -> str:
    """Name of a result that is given none: the time, UTC."""
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime())


def new_result_file(loaded: LoadedConfiguration, suite: str, name: str, effect: str) -> Path:
    """Where a new result goes. Raises HoustonError where one is there already; effect: what then
    did not happen."""
    file = result_file(loaded, f"{suite}/{name}")
    if file.exists():
        raise HoustonError(f"{file} already exists.", effect, "Name another --name.")
    return file


def result_file(loaded: LoadedConfiguration, named: str) -> Path:
    """A result's file: a path that is there, or a name in the home."""
    path = Path(named)
    own = suite_run.suites_folder(loaded.home) / f"{named}.json"
    return path.absolute() if path.is_file() else own
