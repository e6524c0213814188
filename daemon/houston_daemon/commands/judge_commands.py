"""`houston judge`: judge the steps of rollouts by rules and a model, and report agreement with
people.

Selects the rollouts, opens the judging engine, prints verdicts and costs. `--calibrate` compares
rules and judge with human verdicts in a table with precision, recall and kappa;
`--check-template` runs the packaged cases through a template. The judging itself, its prompts and
its statistics are the room `review`.
"""

import argparse
import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec

from houston_daemon.commands import export_commands
from houston_daemon.engines.local_model import MODEL_NAME
from houston_daemon.review import rollout_trace
from houston_daemon.review.judge import judge_calibration
from houston_daemon.review.judge.judge_cache import JudgeCache
from houston_daemon.review.judge.judge_calibration import (
    CalibrationReport,
    CaseResult,
    VerdictAgreement,
    judged_by_people,
)
from houston_daemon.review.judge.judge_client import JudgeClient, JudgeCost, WindowJudge
from houston_daemon.review.judge.judge_engine import (
    JudgeEnginePlace,
    choose_judge_place,
    open_judge_client,
)
from houston_daemon.review.judge.judge_session import JudgeRequest, JudgeSession
from houston_daemon.review.judge.judge_template import JUDGE_FORM, JudgeTemplate, load_template
from houston_daemon.review.judge.judge_verdicts import (
    JudgeOutcome,
    outcome_json,
    outcome_lines,
    passed_over_sentence,
    rule_failed_sentence,
)
from houston_shared import command_output, secret_redaction
from houston_shared.command_arguments import whole_number
from houston_shared.config import LoadedConfiguration
from houston_shared.config_sections import JudgeSettings
from houston_shared.control_client import require_daemon
from houston_shared.errors import ExitCode, UsageError
from houston_shared.store import store_reader
from houston_shared.store.rollout_queries import select_rollout_ids
from houston_shared.store.store_reader import Reader
from houston_shared.wilson_interval import ConfidenceInterval

_COLUMN_NAMES = "steps masks right precision recall F1 kappa agreement"
_AGREEMENT_COLUMNS = ("", *_COLUMN_NAMES.split())


def _print_calibration(loaded: LoadedConfiguration, rollouts: Sequence[str], as_json: bool) -> int:
    """Compare rules and judge with people over `rollouts`, all where none is named."""
    with contextlib.closing(Reader(loaded.home)) as reader:
        rollout_ids = list(rollouts) or reader.run(judged_by_people())
        report = judge_calibration.calibrate(reader, rollout_ids)
    if passed_over := passed_over_sentence(report.passed):
        command_output.print_note(passed_over)
    for rollout, problem in report.failed.items():
        command_output.print_note(rule_failed_sentence(rollout, problem))
    code = int(ExitCode.FAILED if report.failed else ExitCode.DONE)
    if as_json:
        for name, agreement in report.by.items():
            command_output.print_json_line(
                {"source": name, "rollouts": report.rollouts, **agreement.as_json()}
            )
        return code
    if not (report.steps or report.passed or report.failed):
        command_output.print_note(
            "No person has judged a step there.\n  next: houston verdict R STEP keep|mask"
        )
    for line in _agreement_table(report) if report.steps else ():
        command_output.print_line(line)
    return code


def _check_template(
    arguments: argparse.Namespace,
    loaded: LoadedConfiguration,
    settings: JudgeSettings,
    template: JudgeTemplate,
) -> int:
    """Put every case before the engine and say how many it judges as intended."""
    cost = JudgeCost()

    async def judge_all(place: JudgeEnginePlace) -> list[CaseResult]:
        async with open_judge_client(place, arguments.policy, settings.window) as client:
            judge = WindowJudge(client, template, settings, JudgeCache(loaded.home), cost)
            cases = judge_calibration.load_cases(arguments.cases)
            return await judge_calibration.judge_cases(cases, judge, settings.concurrency)

    with choose_judge_place(loaded, command_output.print_note, settings.engine) as place:
        results = asyncio.run(judge_all(place))
    for result in results:
        _print_case(result, arguments.json)
    if not arguments.json:
        command_output.print_line(
            f"{_matched_counts(results)} as meant: {', '.join(_counts_by_verdict(results))}."
        )
        command_output.print_note(cost.words(settings))
    return int(ExitCode.DONE)


def _print_case(result: CaseResult, as_json: bool) -> None:
    """As JSON each; for people those that were not judged as meant."""
    case = result.case
    if as_json:
        fields = {"criterion": case.criterion, "case": case.name, "meant": case.meant}
        verdict = {"verdict": result.verdict, "as_meant": result.as_meant, "reason": result.reason}
        command_output.print_json_line({**fields, **verdict})
    elif not result.as_meant:
        answer = f"{result.verdict}{f' ({result.reason})' if result.reason else ''}"
        command_output.print_line(
            f"{case.criterion}: {case.name}: meant {case.meant}, said {answer}"
        )


def _counts_by_verdict(results: Sequence[CaseResult]) -> Iterator[str]:
    for verdict in ("keep", "mask"):
        of_kind = [result for result in results if result.case.meant == verdict]
        yield f"{_matched_counts(of_kind)} to {verdict}"
    if undecided := sum(result.verdict == "undecided" for result in results):
        yield f"{undecided} undecided"


def _matched_counts(results: Sequence[CaseResult]) -> str:
    return f"{sum(result.as_meant for result in results)} of {len(results)}"


def _agreement_table(report: CalibrationReport) -> Iterator[str]:
    yield (
        f"{report.steps} steps of {report.rollouts} rollouts were judged by people: "
        f"{report.masked} masked, {report.steps - report.masked} kept. Bounds at 95 %."
    )
    sources = {name: by for name, by in report.by.items() if by.both + by.only_source}
    rows = [_AGREEMENT_COLUMNS, *(_agreement_row(name, by) for name, by in sources.items())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()
    if silent := report.by.keys() - sources.keys():
        yield f"Masked none of these steps: {', '.join(n for n in report.by if n in silent)}."
    for reason in dict.fromkeys(by.few for by in report.by.values() if by.few):
        yield f"Too little to go by: {reason}."


def _agreement_row(name: str, by: VerdictAgreement) -> tuple[str, ...]:
    return (
        *(name, str(by.steps), str(by.both + by.only_source), str(by.both)),
        *(_interval_words(by.precision), _interval_words(by.recall)),
        *(_score_words(by.f1), _score_words(by.kappa), _interval_words(by.agreed)),
    )


def _interval_words(share: ConfidenceInterval) -> str:
    return "–" if share.value is None else f"{share.value:.2f} ({share.low:.2f}–{share.high:.2f})"


def _score_words(score: float | None) -> str:
    return "–" if score is None else f"{score + 0.0:.2f}"


_ACTION_FLAGS = {
    "--rules-only": "ask no model",
    "--no-rules": "leave the rules' verdicts as they are",
    "--calibrate": "report how rules and judge agree with people, on R… or on all that people"
    " judged",
    "--check-template": "count the cases that the engine judges as intended",
    "--print-template": "print the packaged template, to edit it",
}
"""What is asked for, one at most."""


def add_judge_arguments(parser: argparse.ArgumentParser) -> None:
    """`R…`, what is asked for, how the judge is asked, `--json`."""
    export_commands.add_selection_arguments(parser)
    order_choice = parser.add_mutually_exclusive_group()
    for flag, text in _ACTION_FLAGS.items():
        order_choice.add_argument(flag, action="store_true", help=text)
    parser.add_argument(
        "--dry-run", action="store_true", help="ask and store nothing; estimate the cost"
    )
    parser.add_argument(
        "--engine", metavar="ENGINE", help="engine of the configuration that judges"
    )
    parser.add_argument(
        "--policy", default="", metavar="POLICY", help="an adapter that the engine has loaded"
    )
    parser.add_argument("--template", type=Path, metavar="FILE", help="the judge's prompt template")
    parser.add_argument("--cases", type=Path, metavar="DIR", help="cases for --check-template")
    parser.add_argument(
        "--concurrency",
        type=whole_number(1, 1_000),
        metavar="N",
        help="number of windows asked at once",
    )
    parser.add_argument(
        "--window",
        type=whole_number(512, 10**7),
        metavar="TOKENS",
        help="use at most this much of the engine's window",
    )
    parser.add_argument("--json", action="store_true", help="one JSON line per rollout")


def run_judge(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Judge, measure, or print."""
    secret_redaction.install_secrets(loaded.config)
    if arguments.print_template:
        command_output.print_line(JUDGE_FORM.read(None).rstrip("\n"))
        return int(ExitCode.DONE)
    if arguments.calibrate:
        named = (
            _named_rollouts(arguments, loaded)
            if export_commands.read_selection(arguments).is_given
            else []
        )
        return _print_calibration(loaded, named, arguments.json)
    settings = _judge_settings(arguments, loaded)
    template = load_template(_template_file(arguments, loaded))
    if arguments.check_template:
        return _check_template(arguments, loaded, settings, template)
    return _judge_rollouts(arguments, loaded, settings, template)


def _judge_rollouts(
    arguments: argparse.Namespace,
    loaded: LoadedConfiguration,
    settings: JudgeSettings,
    template: JudgeTemplate,
) -> int:
    rollouts = _named_rollouts(arguments, loaded)
    if not arguments.dry_run:
        require_daemon(loaded.home)  # before anything is asked that could not be stored
    request = JudgeRequest(not arguments.no_rules, not arguments.rules_only, arguments.dry_run)
    failed: list[str] = []

    def report_outcome(outcome: JudgeOutcome) -> None:
        if outcome.judge is not None and outcome.judge.windows and not outcome.judge.steps:
            failed.append(outcome.rollout)
        if arguments.json:
            return command_output.print_json_line(outcome_json(outcome, settings, request.dry))
        for line in outcome_lines(outcome, request.dry):
            command_output.print_line(line)

    session = JudgeSession(
        loaded, settings, request, template, None, command_output.print_note, report_outcome
    )
    if request.judge:
        with choose_judge_place(loaded, command_output.print_note, settings.engine) as place:
            if place.serves_packaged_model and not arguments.policy:
                command_output.print_note(_packaged_model_note(place.name))
            client = open_judge_client(place, arguments.policy, settings.window, not request.dry)
            with _told_when_interrupted():
                asyncio.run(_run_with_client(session, client, rollouts))
    else:
        asyncio.run(session.run(rollouts))
    if sentence := passed_over_sentence(session.passed_over):
        command_output.print_note(sentence)
    if request.judge and not (arguments.json or request.dry):
        command_output.print_note(session.cost.words(settings))
    if failed or session.failed:
        return int(ExitCode.FAILED)
    return int(ExitCode.BUSY if session.busy else ExitCode.DONE)


def _packaged_model_note(engine: str) -> str:
    return (
        f"Engine {engine} serves {MODEL_NAME}, which judges hardly better than a coin: it shows how"
        " judging goes, and its verdicts are not worth training on.\n"
        "  next: --engine ENGINE, or engine in [judge], with a larger model (docs/judging.md)"
    )


@contextlib.contextmanager
def _told_when_interrupted() -> Iterator[None]:
    """Around judging: after Ctrl-C say what became of it."""
    try:
        yield
    except KeyboardInterrupt:
        command_output.print_note(
            "\nStopped: what was stored stays, and answers received so far are kept.\n"
            "  next: the same command again, which asks only what is not answered yet"
        )
        raise


async def _run_with_client(
    session: JudgeSession, client: AbstractAsyncContextManager[JudgeClient], rollouts: list[str]
) -> None:
    async with client as session.client:
        await session.run(rollouts)


def _judge_settings(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> JudgeSettings:
    """`[judge]` with the flags laid over it."""
    flags = {name: getattr(arguments, name) for name in ("engine", "concurrency", "window")}
    changed = {name: value for name, value in flags.items() if value is not None}
    return msgspec.structs.replace(loaded.config.judge, **changed)


def _template_file(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> Path | None:
    """The template's file; None for the packaged one."""
    if arguments.template:
        return Path(arguments.template)
    configured = loaded.config.judge.template
    return loaded.beside(configured) if configured else None


def _named_rollouts(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> list[str]:
    """Whole ids of the rollouts that are meant, each once.

    Raises HoustonError, also where one was named whose texts are gone: of many at once it is only
    left out.
    """
    if not export_commands.read_selection(arguments).is_given:
        raise UsageError(
            "Name the rollouts to judge, or one of --task, --group and --all.",
            "",
            "houston rollout list",
        )
    store_reader.require_database(loaded.home)
    with contextlib.closing(Reader(loaded.home)) as reader:
        rollouts = reader.run(
            select_rollout_ids(export_commands.read_selection(arguments), "Nothing was judged.")
        )
        for rollout in rollouts if arguments.rollouts else ():
            reader.run(rollout_trace.require_all_texts(rollout))
        return rollouts
