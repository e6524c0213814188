"""`houston label`: writes a file of what each decision of some rollouts was worth, by people and by
a judge.

`houston train prm` reads it. The package `training.prm` defines labels.
"""

import argparse
import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.commands import export_commands
from houston_daemon.engines.engine_protocol import EngineRefused
from houston_daemon.review.judge.judge_cache import JudgeCache
from houston_daemon.review.judge.judge_client import JudgeCost, QuestionAsker
from houston_daemon.review.judge.judge_engine import (
    JudgeEnginePlace,
    choose_judge_place,
    open_judge_client,
)
from houston_daemon.suites.suite_results import rollouts_of_run
from houston_daemon.suites.suite_run import suites_folder
from houston_daemon.training.prm.decision_labels import DecisionLabel, write_labels
from houston_daemon.training.prm.label_session import (
    JudgeAgreement,
    LabelSession,
    UnlabelledDecision,
    read_decisions,
)
from houston_daemon.training.prm.scoring_rubric import NOTHING_LABELLED, RUBRIC_FORM, load_rubric
from houston_shared import command_output, secret_redaction
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ExitCode, HoustonError, UsageError, unwritable_as_error
from houston_shared.store import store_reader
from houston_shared.store.rollout_queries import select_rollout_ids
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import pluralize

DEFAULT_FILE = Path("labels.jsonl")
_UNDECIDED_SHOWN = 3


def add_label_arguments(parser: argparse.ArgumentParser) -> None:
    """`R…`, `--suite-run`, who says it, the rubric, `--out`, `--json`."""
    export_commands.add_selection_arguments(parser)
    parser.add_argument(
        "--suite-run",
        default="",
        metavar="SUITE/NAME",
        help="all rollouts of a run of houston suite run or evaluate; NAME alone will do",
    )
    who = parser.add_mutually_exclusive_group()
    who.add_argument(
        "--judge",
        metavar="ENGINE",
        help="engine that scores what no person judged; default: [judge] engine",
    )
    who.add_argument(
        "--people", action="store_true", help="only what people judged; no model is asked"
    )
    who.add_argument(
        "--print-rubric", action="store_true", help="print the packaged rubric, to edit it"
    )
    parser.add_argument("--rubric", type=Path, metavar="FILE", help="the judge's rubric")
    parser.add_argument(
        "--also-judged",
        action="store_true",
        help="also ask the judge what people judged, and report how they agree",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=DEFAULT_FILE,
        metavar="FILE",
        help=f"file to write ({DEFAULT_FILE})",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object at the end")


def run_label(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Read, ask, write; exit code 1 where some decision could not be labelled."""
    secret_redaction.install_secrets(loaded.config)
    if arguments.print_rubric:
        command_output.print_line(RUBRIC_FORM.read(None).rstrip("\n"))
        return int(ExitCode.DONE)
    rubric = load_rubric(arguments.rubric)
    decisions = _read_decisions(arguments, loaded)
    session = LabelSession(
        rubric, None, loaded.config.judge.concurrency, command_output.print_note,
        arguments.also_judged and not arguments.people,
    )  # fmt: skip
    cost = JudgeCost()
    if arguments.people:
        labels = asyncio.run(session.run(decisions))
    else:
        labels = _ask_judge(arguments, loaded, session, decisions, cost)
    if not labels:
        raise HoustonError(
            f"None of {pluralize(len(decisions), 'decision')} could be labelled"
            f"{': no person judged one' if arguments.people else ''}.",
            f"{arguments.out} was not written.",
            "houston verdict R STEP keep|mask" if arguments.people else "houston label … --judge E",
        )
    _write(arguments.out, labels)
    _print(arguments, loaded, session, labels, cost)
    return int(ExitCode.FAILED if session.undecided else ExitCode.DONE)


def _read_decisions(
    arguments: argparse.Namespace, loaded: LoadedConfiguration
) -> list[UnlabelledDecision]:
    """The decisions that are meant. Raises HoustonError for rollouts that there are not."""
    selection = export_commands.read_selection(arguments)
    if not (selection.is_given or arguments.suite_run):
        raise UsageError(
            "Name the rollouts to label, or one of --suite-run, --task, --group and --all.",
            NOTHING_LABELLED,
            "houston rollout list",
        )
    store_reader.require_database(loaded.home)
    with contextlib.closing(Reader(loaded.home)) as reader:
        rollouts: list[str] = []
        if arguments.suite_run:
            rollouts += rollouts_of_run(suites_folder(loaded.home), arguments.suite_run)
        if selection.is_given:
            rollouts += reader.run(select_rollout_ids(selection, NOTHING_LABELLED))
        decisions = list(read_decisions(reader, rollouts))
    if not decisions:
        raise HoustonError(
            f"{pluralize(len(rollouts), 'rollout')} hold no decision: no step has closed, or the"
            " texts were erased or archived.",
            NOTHING_LABELLED,
            "houston rollout list",
        )
    return decisions


def _ask_judge(
    arguments: argparse.Namespace,
    loaded: LoadedConfiguration,
    session: LabelSession,
    decisions: Sequence[UnlabelledDecision],
    cost: JudgeCost,
) -> list[DecisionLabel]:
    settings = loaded.config.judge

    async def ask(place: JudgeEnginePlace) -> list[DecisionLabel]:
        async with open_judge_client(place, "", settings.window) as client:
            session.asker = QuestionAsker(client, settings, JudgeCache(loaded.home), cost)
            return await session.run(decisions)

    note = command_output.print_note
    try:
        with choose_judge_place(loaded, note, arguments.judge, effect=NOTHING_LABELLED) as place:
            return asyncio.run(ask(place))
    except EngineRefused as problem:
        raise EngineRefused(
            problem.cause,
            f"{arguments.out} was not written; what the judge said before is kept.",
            problem.next or "the same command: it asks only what is not known yet",
        ) from problem


def _write(file: Path, labels: Sequence[DecisionLabel]) -> None:
    with unwritable_as_error(
        file, "What the judge said is kept.", "the same command with another --out FILE"
    ):
        write_labels(file, labels)


def _print(
    arguments: argparse.Namespace,
    loaded: LoadedConfiguration,
    session: LabelSession,
    labels: Sequence[DecisionLabel],
    cost: JudgeCost,
) -> None:
    by_source = dict(sorted(Counter(label.source for label in labels).items()))
    settings = loaded.config.judge
    if arguments.json:
        judged: dict[str, Any] = {}
        if session.asker is not None:
            judged = {
                "rubric": session.rubric.digest,
                "cost": cost.as_json(settings, "decision"),
                "agreement": msgspec.to_builtins(session.agreement),
            }
        command_output.print_json_line(
            {"file": str(arguments.out), "labels": len(labels), "by_source": by_source}
            | {"tasks": len({label.task for label in labels})}
            | {"undecided": session.undecided, **judged}
        )
        return
    counts = ", ".join(f"{count} by {_WHO[source]}" for source, count in by_source.items())
    command_output.print_line(f"{arguments.out}: {pluralize(len(labels), 'label')}, {counts}")
    for line in session.undecided[:_UNDECIDED_SHOWN]:
        command_output.print_note(f"not labelled: {line}")
    if len(session.undecided) > _UNDECIDED_SHOWN:
        more = len(session.undecided) - _UNDECIDED_SHOWN
        command_output.print_note(f"not labelled: {more} more; --json lists them")
    if session.agreement is not None:
        command_output.print_line(agreement_line(session.agreement))
    if session.asker is not None:
        command_output.print_note(cost.words(settings, "decision"))
    command_output.print_note(f"next: houston train prm --labels {arguments.out}")


_WHO = {"human": "people", "judge": "a judge", "rule": "rule (no action)"}


def agreement_line(agreement: JudgeAgreement) -> str:
    """How a judge agrees with people, in one line."""
    if agreement.order is None:
        return (
            f"The judge cannot be compared with people: they kept {agreement.kept} and masked"
            f" {agreement.masked} of these decisions."
        )
    return (
        f"Of pairs of a decision that people kept ({agreement.kept}) and one they masked"
        f" ({agreement.masked}), the judge orders {agreement.order:.0%} correctly; its mean scores"
        f" are {agreement.mean_kept:.2f} and {agreement.mean_masked:.2f}."
    )
