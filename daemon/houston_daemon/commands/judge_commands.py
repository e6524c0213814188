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
from houston_daemon.review import rollout_trace
from houston_daemon.review.judge import judge_calibration, judge_engine
from houston_daemon.review.judge.judge_cache import JudgeCache
from houston_daemon.review.judge.judge_calibration import (
    CalibrationReport,
    CaseResult,
    VerdictAgreement,
    judged_by_people,
)
from houston_daemon.review.judge.judge_calibration import calibrate as compared
from houston_daemon.review.judge.judge_client import JudgeClient, JudgeCost, WindowJudge
from houston_daemon.review.judge.judge_prompt import TEMPLATE_FILE, JudgeTemplate, load_template
from houston_daemon.review.judge.judge_session import JudgeRequest, JudgeSession
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
from houston_shared.errors import DaemonNotRunning, ExitCode, HoustonError
from houston_shared.store import store_reader
from houston_shared.store.rollout_queries import select_rollout_ids
from houston_shared.store.store_reader import Reader
from houston_shared.wilson_interval import ConfidenceInterval

_AGREEMENT_COLUMNS = (
    "",
    "steps",
    "masks",
    "right",
    "precision",
    "recall",
    "F1",
    "kappa",
    "agreement",
)


def print_calibration(loaded: LoadedConfiguration, rollouts: Sequence[str], json: bool) -> int:
    """Compare rules and judge with people over `rollouts`, all where none is named."""
    with contextlib.closing(Reader(loaded.home)) as reader:
        named = list(rollouts) or reader.run(judged_by_people())
        found = compared(reader, named)
    if said := passed_over_sentence(found.passed):
        command_output.print_note(said)
    for rollout, problem in found.failed.items():
        command_output.print_note(rule_failed_sentence(rollout, problem))
    code = int(ExitCode.FAILED if found.failed else ExitCode.DONE)
    if json:
        for name, one in found.by.items():
            command_output.print_json_line(
                {"source": name, "rollouts": found.rollouts, **one.as_json()}
            )
        return code
    if not (found.steps or found.passed or found.failed):
        command_output.print_note(
            "No person has judged a step there.\n  next: houston verdict R STEP keep|mask"
        )
    for line in _agreement_table(found) if found.steps else ():
        command_output.print_line(line)
    return code


def print_template_check(
    loaded: LoadedConfiguration,
    made: AbstractAsyncContextManager[JudgeClient],
    template: JudgeTemplate,
    settings: JudgeSettings,
    folder: Path | None,
    json: bool,
) -> int:
    """Put every case before the engine and say how many it judges as meant."""
    cost = JudgeCost()

    async def asked() -> list[CaseResult]:
        async with made as client:
            judge = WindowJudge(client, template, settings, JudgeCache(loaded.home), cost)
            return await judge_calibration.judge_cases(
                judge_calibration.load_cases(folder), judge, settings.concurrency
            )

    tried = asyncio.run(asked())
    for one in tried:
        if json:
            command_output.print_json_line(
                {
                    "criterion": one.case.criterion,
                    "case": one.case.name,
                    "meant": one.case.meant,
                    "verdict": one.verdict,
                    "as_meant": one.as_meant,
                    "reason": one.reason,
                }
            )
        elif not one.as_meant:
            said = f"{one.case.criterion}: {one.case.name}: meant {one.case.meant}"
            command_output.print_line(
                f"{said}, said {one.verdict}{f' ({one.reason})' if one.reason else ''}"
            )
    if not json:
        command_output.print_line(
            f"{_matched_counts(tried)} as meant: {', '.join(_counts_by_verdict(tried))}."
        )
        command_output.print_note(cost.words(settings))
    return int(ExitCode.DONE)


def _counts_by_verdict(tried: Sequence[CaseResult]) -> Iterator[str]:
    for meant in ("keep", "mask"):
        yield f"{_matched_counts([one for one in tried if one.case.meant == meant])} to {meant}"
    if undecided := sum(one.verdict == "undecided" for one in tried):
        yield f"{undecided} undecided"


def _matched_counts(tried: Sequence[CaseResult]) -> str:
    return f"{sum(one.as_meant for one in tried)} of {len(tried)}"


def _agreement_table(found: CalibrationReport) -> Iterator[str]:
    yield (
        f"{found.steps} steps of {found.rollouts} rollouts were judged by people: "
        f"{found.masked} masked, {found.steps - found.masked} kept. Bounds at 95 %."
    )
    silent = [name for name, one in found.by.items() if not one.both + one.only_source]
    rows = [
        _AGREEMENT_COLUMNS,
        *(_agreement_row(name, one) for name, one in found.by.items() if name not in silent),
    ]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_AGREEMENT_COLUMNS))]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()
    if silent:
        yield f"Masked none of these steps: {', '.join(silent)}."
    for reason in dict.fromkeys(one.few for one in found.by.values() if one.few):
        yield f"Too little to go by: {reason}."


def _agreement_row(name: str, one: VerdictAgreement) -> tuple[str, ...]:
    masks = one.both + one.only_source
    return (
        name, str(one.steps), str(masks), str(one.both), _interval_words(one.precision),
        _interval_words(one.recall),
        _score_words(one.f1), _score_words(one.kappa), _interval_words(one.agreed),
    )  # fmt: skip


def _interval_words(one: ConfidenceInterval) -> str:
    return "–" if one.value is None else f"{one.value:.2f} ({one.low:.2f}–{one.high:.2f})"


def _score_words(one: float | None) -> str:
    return "–" if one is None else f"{one + 0.0:.2f}"


def add_judge_arguments(parser: argparse.ArgumentParser) -> None:
    """`R…`, what is asked for, how the judge is asked, `--json`."""
    export_commands.add_selection_arguments(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--rules-only", action="store_true", help="ask no model")
    what.add_argument(
        "--no-rules", action="store_true", help="leave the rules' verdicts as they are"
    )
    what.add_argument(
        "--calibrate",
        action="store_true",
        help="how rules and judge agree with people, over R… or everything that people judged",
    )
    what.add_argument(
        "--check-template",
        action="store_true",
        help="how many of the cases the engine judges as meant",
    )
    what.add_argument(
        "--print-template", action="store_true", help="write out the packaged template, to edit"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="ask and store nothing; what it takes"
    )
    parser.add_argument("--engine", metavar="E", help="engine of the configuration that judges")
    parser.add_argument(
        "--policy", default="", metavar="NAME", help="an adapter that it has loaded"
    )
    parser.add_argument("--template", type=Path, metavar="FILE", help="the judge's words")
    parser.add_argument("--cases", type=Path, metavar="DIR", help="cases for --check-template")
    parser.add_argument(
        "--concurrency",
        type=whole_number(1, 1_000),
        metavar="N",
        help="windows that are asked at once",
    )
    parser.add_argument(
        "--window",
        type=whole_number(512, 10**7),
        metavar="TOKENS",
        help="most of the engine's window",
    )
    parser.add_argument("--json", action="store_true", help="one JSON line a rollout")


def run_judge(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Judge, measure, or print."""
    secret_redaction.install_secrets(loaded.config)
    if arguments.print_template:
        command_output.print_line(TEMPLATE_FILE.read_text(encoding="utf-8").rstrip("\n"))
        return int(ExitCode.DONE)
    if arguments.calibrate:
        named = (
            _named_rollouts(arguments, loaded)
            if export_commands.read_selection(arguments).given
            else []
        )
        return print_calibration(loaded, named, arguments.json)
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
    named = _named_rollouts(arguments, loaded)
    if not arguments.dry_run:
        require_daemon(loaded.home)  # before anything is asked that could not be stored
    wanted = JudgeRequest(not arguments.no_rules, not arguments.rules_only, arguments.dry_run)
    failed: list[str] = []

    def done(one: JudgeOutcome) -> None:
        if one.judge is not None and one.judge.windows and not one.judge.steps:
            failed.append(one.rollout)
        if arguments.json:
            return command_output.print_json_line(outcome_json(one, settings, wanted.dry))
        for line in outcome_lines(one, wanted.dry):
            command_output.print_line(line)

    session = JudgeSession(
        loaded, settings, wanted, template, None, command_output.print_note, done
    )
    if not wanted.judge:
        asyncio.run(session.run(named))
        _note_passed_over(session)
        return int(ExitCode.FAILED if session.failed else ExitCode.DONE)

    async def asked(place: judge_engine.JudgeEnginePlace) -> None:
        made = judge_engine.open_judge_client(
            place, arguments.policy, settings.window, not wanted.dry
        )
        async with made as session.client:
            await session.run(named)

    with _judge_engine(loaded, settings) as place:
        asyncio.run(asked(place))
    _note_passed_over(session)
    if not (arguments.json or wanted.dry):
        command_output.print_note(session.cost.words(settings))
    return int(ExitCode.FAILED if failed or session.failed else ExitCode.DONE)


def _note_passed_over(session: JudgeSession) -> None:
    if said := passed_over_sentence(session.passed_over):
        command_output.print_note(said)


def _check_template(
    arguments: argparse.Namespace,
    loaded: LoadedConfiguration,
    settings: JudgeSettings,
    template: JudgeTemplate,
) -> int:
    with _judge_engine(loaded, settings) as place:
        made = judge_engine.open_judge_client(place, arguments.policy, settings.window)
        return print_template_check(
            loaded, made, template, settings, arguments.cases, arguments.json
        )


def _judge_engine(
    loaded: LoadedConfiguration, settings: JudgeSettings
) -> judge_engine.JudgeEnginePlace:
    """Where the engine is that judges."""
    return judge_engine.JudgeEnginePlace(
        loaded, settings.engine or loaded.config.default_engine, command_output.print_note
    )


def _judge_settings(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> JudgeSettings:
    """`[judge]` with the flags laid over it."""
    flags = {
        "engine": arguments.engine,
        "concurrency": arguments.concurrency,
        "window": arguments.window,
    }
    given = {key: value for key, value in flags.items() if value is not None}
    return msgspec.structs.replace(loaded.config.judge, **given)


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
    if not export_commands.read_selection(arguments).given:
        raise HoustonError(
            "Name the rollouts to judge, or one of --task, --group and --all.",
            "",
            "houston rollout list",
            ExitCode.USAGE,
        )
    if not store_reader.has_database(loaded.home):
        raise DaemonNotRunning(f"No daemon runs on {loaded.home.path}, and none ever did.")
    with contextlib.closing(Reader(loaded.home)) as reader:
        found = reader.run(
            select_rollout_ids(export_commands.read_selection(arguments), "Nothing was judged.")
        )
        for rollout in found if arguments.rollouts else ():
            reader.run(rollout_trace.require_all_texts(rollout))
        return found
