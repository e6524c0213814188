"""`houston evaluate`: how an agent does on the tasks of a suite or the questions of a file, before
and after, and whether two results differ beyond chance.

Both arms play the same tasks in the same harness, with the same decoding. Questions that the
policies were trained on are dropped. Runs are kept as files in the home; the package `suites`
computes the figures.
"""

import argparse
import contextlib
from pathlib import Path

from houston_daemon.commands.suite_commands import (
    add_player_arguments,
    default_result_name,
    names_file,
    new_result_file,
    result_file,
)
from houston_daemon.service import rollout_start_checks
from houston_daemon.suites import evaluation_report, suite_results, suite_run
from houston_daemon.suites.question_files import (
    KINDS,
    NOTHING_EVALUATED,
    question_tasks,
    read_question_file,
)
from houston_daemon.suites.question_leaks import Leak, TrainingText, find_leaks
from houston_daemon.suites.suite_catalog import (
    REASONING_GYM,
    SUITES,
    TaskSource,
    suite_tasks,
)
from houston_daemon.suites.suite_results import SuiteRun
from houston_daemon.suites.suite_run import SuiteOrder
from houston_daemon.training.policies.lineage_texts import LineageTexts, lineage_texts
from houston_daemon.training.policies.policy_constraints import POLICY_ENGINES
from houston_shared import command_output
from houston_shared.command_arguments import whole_number
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ExitCode, HoustonError, UsageError
from houston_shared.store import policy_queries
from houston_shared.store.store_reader import Reader

AGENTS = ("react", "flow")


def add_evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    """`SUITE`, who plays it, how much of it, the decoding; `--compare`; the report."""
    parser.add_argument(
        "suite",
        metavar="SUITE|FILE",
        nargs="?",
        help=f"one of {', '.join(SUITES)}, {REASONING_GYM}DATASET, or a file of questions (.jsonl,"
        " .json, .csv, .parquet)",
    )
    parser.add_argument(
        "--kind", choices=KINDS, default="", help="kind of the file; default: by its columns"
    )
    parser.add_argument(
        "--against",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="questions that were trained on: those that also occur in the file are dropped;"
        " what Houston trained the policies on is always checked",
    )
    add_player_arguments(parser)
    parser.add_argument(
        "--before",
        default="",
        metavar="POLICY",
        help="also evaluate this policy on the same tasks, and compare: policy@1, or `base`",
    )
    parser.add_argument(
        "-n",
        type=whole_number(1, 100_000),
        metavar="N",
        help="number of tasks (200 of a suite, or all it has; all of a file)",
    )
    parser.add_argument("--agent", choices=AGENTS, default="", help="default: what the tasks say")
    parser.add_argument(
        "--temperature", type=_temperature, metavar="T", help="default: what the tasks say"
    )
    parser.add_argument(
        "--compare",
        nargs=2,
        metavar=("BEFORE", "AFTER"),
        help="run nothing: compare two results, each a file or SUITE/NAME of this home",
    )
    parser.add_argument(
        "--picture", type=Path, metavar="FILE", help="draw the figures: FILE.svg or FILE.png"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def _temperature(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError("it is a number from 0 to 100")
    return value


def run_evaluate(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Run or read the arms, and report. Raises HoustonError."""
    if bool(arguments.compare) == bool(arguments.suite):
        raise UsageError(
            "Name a suite or a file to evaluate on, or two results with --compare.",
            NOTHING_EVALUATED,
            "houston suite list",
        )
    dropped: list[Leak] = []
    unknown: list[str] = []
    if arguments.compare:
        files = [result_file(loaded, named) for named in arguments.compare]
        runs = [suite_results.read_run(file) for file in files]
    else:
        tasks, dropped, unknown = _tasks(arguments, loaded)
        files, runs = _evaluate(arguments, loaded, tasks)
    report = evaluation_report.report_json(runs)
    if arguments.json:
        leaks = {"dropped": [leak._asdict() for leak in dropped], "unknown_training": unknown}
        command_output.print_json_line({"files": list(map(str, files)), **leaks, **report})
    else:
        for line in evaluation_report.report_lines(report):
            command_output.print_line(line)
        command_output.print_note(f"kept: {', '.join(map(str, files))}")
    if arguments.picture:
        evaluation_report.draw_report(report, arguments.picture)
    return int(ExitCode.DONE)


def _tasks(
    arguments: argparse.Namespace, loaded: LoadedConfiguration
) -> tuple[TaskSource, list[Leak], list[str]]:
    """What is asked, the questions of a file that are not, since they were trained on, and the
    policies of whose training not all is known."""
    file = Path(arguments.suite)
    if not names_file(arguments.suite):
        return suite_tasks(arguments.suite, arguments.split), [], []
    questions = read_question_file(file, arguments.kind)
    texts, unknown = _training_texts(arguments, loaded)
    leaks = find_leaks([(question.id, question.bare) for question in questions], texts)
    for leak in leaks:
        command_output.print_note(
            f"dropped {leak.id}: its {leak.why} occurs in {leak.where}, which was trained on"
        )
    leaked_ids = {leak.id for leak in leaks}
    unseen_questions = [question for question in questions if question.id not in leaked_ids]
    if not unseen_questions:
        raise HoustonError(
            f"All {len(questions)} questions of {file} were trained on.", NOTHING_EVALUATED
        )
    return question_tasks(file, unseen_questions), leaks, unknown


def _training_texts(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> LineageTexts:
    """Of the files that are named, and of the policies that are evaluated; where one is not named
    it may be any policy of the home."""
    texts = [
        TrainingText(f"{file}: {question.id}", question.bare)
        for file in arguments.against
        for question in read_question_file(file)
    ]
    with contextlib.closing(Reader(loaded.home)) as reader:
        names = [arguments.policy, arguments.before] if arguments.policy else []
        if not names and _takes_policies(loaded, arguments.engine or loaded.config.default_engine):
            names = [row.name for row in reader.run(policy_queries.list_policies())]
        lineage = lineage_texts(loaded.home, reader, names)
    for policy in lineage.unknown:
        command_output.print_note(f"questions may have been trained on: {policy}")
    return LineageTexts(texts + lineage.texts, lineage.unknown)


def _takes_policies(loaded: LoadedConfiguration, engine: str) -> bool:
    return loaded.engine(engine).kind in POLICY_ENGINES


def _evaluate(
    arguments: argparse.Namespace, loaded: LoadedConfiguration, tasks: TaskSource
) -> tuple[list[Path], list[SuiteRun]]:
    """Run each arm, one after the other; their files and results."""
    name = arguments.name or default_result_name()
    arms = [(name, arguments.policy)]
    if arguments.before:
        arms.insert(0, (f"{name}-before", arguments.before))
    engine = arguments.engine or loaded.config.default_engine
    for _, policy in arms:  # before the first of them costs anything
        rollout_start_checks.check_policy(loaded, engine, policy)
    files = [new_result_file(loaded, tasks.suite, arm, NOTHING_EVALUATED) for arm, _ in arms]
    runs = []
    for file, (_, policy) in zip(files, arms, strict=True):
        order = _order(arguments, loaded, tasks, policy)
        own = "the active policy" if _takes_policies(loaded, engine) else f"engine {engine}"
        command_output.print_note(f"{policy or own}: {order.worlds} tasks")
        run = suite_run.run_suite(loaded, order, command_output.print_note)
        suite_results.write_run(file, run)
        runs.append(run)
    return files, runs


def _order(
    arguments: argparse.Namespace, loaded: LoadedConfiguration, tasks: TaskSource, policy: str
) -> SuiteOrder:
    return SuiteOrder(
        tasks=tasks,
        worlds=tasks.resolve_task_count(arguments.n),
        attempts=arguments.attempts,
        engine=arguments.engine or loaded.config.default_engine,
        policy=policy,
        seed=arguments.seed,
        agent=arguments.agent,
        temperature=arguments.temperature,
    )
