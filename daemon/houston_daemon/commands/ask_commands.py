"""`houston ask`: one question, one flow rollout, its answer with steps and sources.

It starts the packaged task `ask` with the question as its instructions, and reads the store until
the rollout has ended. That rollout is like any other: it can be guided, watched and judged
meanwhile, and continues if this command is ended.
"""

import argparse
import json
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from houston_daemon.environments.questions.answer_scoring import normal
from houston_daemon.service import rollout_start_checks
from houston_daemon.service.rollout_end_wait import (
    Rows,
    wait_until_ended,
    waiting_for_a_person,
)
from houston_shared import command_output
from houston_shared.command_arguments import whole_number
from houston_shared.config import LoadedConfiguration
from houston_shared.control_client import ControlClient, send_with_retry
from houston_shared.control_messages import StartRollouts, Status
from houston_shared.errors import ExitCode, HoustonError, UsageError
from houston_shared.home import Home
from houston_shared.records import AWAY_ACTIVITY, StepRecord, ToolResult
from houston_shared.safe_text import safe, safe_line
from houston_shared.store import step_queries
from houston_shared.store.rollout_queries import RolloutRow
from houston_shared.store.step_json import (
    call_json,
    count_verifications,
    verification_json,
    verification_line,
)
from houston_shared.store.store_reader import Reader
from houston_shared.task import LoadedTask, Task, load_task, packaged_tasks_folder
from houston_shared.times_and_counts import pluralize
from houston_shared.toml_file import convert_toml, parse_toml
from houston_shared.wire import AskStatus

ASK_TASK = packaged_tasks_folder() / "search-qa" / "ask.toml"
_CORPUS_LINE, _STEPS_LINE = 'corpus = "corpus.jsonl"', "steps = 8"
_NAME_LINE, _OWN_NAME = 'name = "search-qa-ask"', 'name = "ask"'
_MEMORY = "\n[agent.memory]\nenabled = true\n"
_SHOWN_CHARACTERS = 100
_SOURCES_SHOWN = 8
_ENTRY = re.compile(r"^\d+\. ", re.MULTILINE)


def add_ask_arguments(parser: argparse.ArgumentParser) -> None:
    """`QUESTION`, `--engine`, `--corpus`, `--web`, `--steps`, `--memory`, `--json`."""
    parser.add_argument("question", metavar="QUESTION", help="what is asked, in quotes")
    parser.add_argument(
        "--engine", metavar="ENGINE", help="engine of the configuration, or script:FILE"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--corpus",
        type=Path,
        metavar="DIR",
        help="folder of text, Markdown and HTML files, or a .jsonl file, to search; "
        "default: the packaged corpus about fictional islands",
    )
    where.add_argument(
        "--web", action="store_true", help="search with this node's provider ([tools.search])"
    )
    parser.add_argument(
        "--steps",
        type=whole_number(1, 200),
        default=8,
        metavar="N",
        help="maximum number of steps (8)",
    )
    parser.add_argument(
        "--memory",
        action="store_true",
        help="recall similar earlier questions, and store this one; default: off",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run_ask(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Ask, wait and print; exit code 1 where there is no answer."""
    question = arguments.question.strip()
    if not question:
        raise UsageError("The question is empty.", "Nothing was asked.")
    task = ask_task(question, arguments)
    rollout = _start(task, arguments.engine, loaded)
    progress = _print_nothing if arguments.json else command_output.print_note
    try:
        if not arguments.json:
            command_output.print_note(f'{rollout}: to speak to it: houston guide {rollout} "…"')
        row, steps = _follow(loaded.home, rollout, progress)
    except KeyboardInterrupt:
        command_output.print_note(
            f"{rollout} is still running; to end it: houston rollout cancel {rollout}"
        )
        raise
    report = AskReport.of(question, row, steps)
    if arguments.json:
        command_output.print_json_line(report.as_json())
    elif report.answer:
        _print_report(report)
    if report.answer:
        return int(ExitCode.DONE)
    raise HoustonError(
        f"There is no answer: {rollout} is {row.state}{f' ({row.reason})' if row.reason else ''}.",
        "",
        f"houston steps {rollout}",
    )


def ask_task(question: str, arguments: argparse.Namespace) -> LoadedTask:
    """The packaged task with the question, and what else the command set. Raises HoustonError."""
    packaged = load_task(ASK_TASK)
    corpus = _CORPUS_LINE
    if arguments.web:
        corpus = ""
    elif arguments.corpus is not None:
        corpus = f"corpus = {json.dumps(str(_corpus_path(arguments.corpus)), ensure_ascii=False)}"
    text = packaged.text
    steps = f"steps = {arguments.steps}"
    for line, value in ((_NAME_LINE, _OWN_NAME), (_CORPUS_LINE, corpus), (_STEPS_LINE, steps)):
        assert line in text, "the packaged task has the line"
        text = text.replace(line, value)
    if arguments.memory:
        text += _MEMORY
    task = convert_toml(parse_toml(text, "houston ask"), Task, "houston ask")
    return replace(packaged, task=task, text=text, instructions=question)


def _corpus_path(path: Path) -> Path:
    whole = path.expanduser().absolute()
    if whole.is_dir() or (whole.suffix == ".jsonl" and whole.is_file()):
        return whole
    raise HoustonError(
        f"{path} is neither a folder nor a .jsonl file.",
        "Nothing was asked.",
        code=ExitCode.USAGE if path.exists() else ExitCode.NOT_FOUND,
    )


def _start(task: LoadedTask, engine: str | None, loaded: LoadedConfiguration) -> str:
    """The id of the rollout that was queued. Raises HoustonError."""
    rollout_start_checks.check_task_names(task)
    name = engine or loaded.config.default_engine
    loaded.engine(name)
    with ControlClient(loaded.home) as client:
        status = client.ask(AskStatus())
        running = status.engines if isinstance(status, Status) else {}
    rollout_start_checks.check_engines(loaded, task, name, running)
    rollout_start_checks.check_machine(task)
    specs = rollout_start_checks.build_rollout_specs(loaded, task, name, 1, None)
    answer = send_with_retry(
        loaded.home,
        StartRollouts(request=uuid.uuid4().hex, specs=specs),
        "It may have been asked.",
        "houston rollout list",
    )
    return str(answer.rollouts[0])


Progress = Callable[[str], None]


def _follow(home: Home, rollout: str, progress: Progress) -> tuple[RolloutRow, list[StepRecord]]:
    """The rollout once it has ended, and its closed steps; each is told as it closes."""
    steps: list[StepRecord] = []
    told_reason = ""
    with Reader(home) as reader:

        def read_new_steps() -> None:
            for record in reader.run(step_queries.read_steps(rollout, len(steps) + 1)):
                if record.observation is None:
                    return
                steps.append(record)
                for line in step_lines(record):
                    progress(line)

        def look(rows: Rows) -> None:
            nonlocal told_reason
            read_new_steps()
            reason = _waiting_reason(rows[rollout])
            if reason and reason != told_reason:
                progress(reason)
            told_reason = reason

        rows = wait_until_ended(home, [rollout], look)
        read_new_steps()
    return rows[rollout], steps


def _waiting_reason(row: RolloutRow) -> str:
    """What a rollout waits for, and who can help; empty where it works."""
    if waiting_for_a_person([row]):
        return f"paused: {row.reason}; next: houston rollout resume {row.id}"
    if row.state == "paused":
        return f"waits: {row.reason}"
    if row.state == "running" and row.activity.startswith(AWAY_ACTIVITY):
        return row.activity
    return ""


def step_lines(record: StepRecord) -> Iterator[str]:
    """A closed step for people: what was done, what it gave, and what the verifier said."""
    number = f"step {record.step}"
    if not record.results:
        yield f"{number}  no action: {record.sample.malformed or record.sample.finish_reason}"
    for result in record.results:
        value = next(iter(result.call.arguments.values()), "")
        last_line = result.text.strip().rpartition("\n")[2]
        outcome = _short(result.text if result.success else f"failed: {last_line}")
        yield f"{number}  {result.call.name} {_short(str(value))}"
        if result.call.name not in ("think", "answer"):
            yield f"          {outcome}"
    if verification := verification_line(record):
        yield f"          {_short(verification)}"


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _SHOWN_CHARACTERS else f"{flat[: _SHOWN_CHARACTERS - 1]}…"


@dataclass(frozen=True, slots=True)
class Source:
    """A document that a search found."""

    title: str
    url: str
    step: int
    holds_answer: bool
    """Whether what was shown of it holds the answer's words."""


@dataclass(frozen=True, slots=True)
class AskReport:
    """What came of a question."""

    question: str
    rollout: str
    state: str
    reason: str
    answer: str
    fallback: bool
    """Whether the loop answered with the last finding, since the planner had not."""
    steps: tuple[StepRecord, ...]
    sources: tuple[Source, ...] = field(default=())

    @classmethod
    def of(cls, question: str, row: RolloutRow, steps: Sequence[StepRecord]) -> "AskReport":
        """steps: all closed ones of the rollout."""
        answer, fallback = "", False
        for record in steps:
            for index, result in enumerate(record.results):
                if result.call.name == "answer" and result.success:
                    answer = str(result.call.arguments.get("text", ""))
                    fallback = index >= len(record.sample.calls)
        sources = tuple(find_sources(steps, answer))
        state, reason = row.state, row.reason
        return cls(question, row.id, state, reason, answer, fallback, tuple(steps), sources)

    def as_json(self) -> dict[str, Any]:
        """The object of `ask --json`."""
        return {
            "question": self.question,
            "answer": self.answer or None,
            "fallback": self.fallback,
            "rollout": self.rollout,
            "state": self.state,
            "reason": self.reason,
            "verifier": count_verifications(self.steps),
            "steps": [_step_json(record) for record in self.steps],
            "sources": [
                {"title": s.title, "url": s.url, "step": s.step, "holds_answer": s.holds_answer}
                for s in self.sources
            ],
        }


def _step_json(record: StepRecord) -> dict[str, Any]:
    return {
        "step": record.step,
        "thought": record.sample.thought,
        "malformed": record.sample.malformed,
        "calls": [call_json(result.call) for result in record.results],
        "results": [{"success": item.success, "text": item.text} for item in record.results],
        "verification": verification_json(record),
    }


def find_sources(steps: Sequence[StepRecord], answer: str) -> Iterator[Source]:
    """Every document that a search found, once, those first whose excerpt holds the answer."""
    sources: dict[str, Source] = {}
    for record in steps:
        for result in record.results:
            for title, url, excerpt in _hits(result):
                entry = sources.get(url)
                holds = _holds(excerpt, answer) or (entry is not None and entry.holds_answer)
                step = entry.step if entry else record.step
                sources[url] = Source(title, url, step, holds)
    return iter(sorted(sources.values(), key=lambda source: not source.holds_answer))


def _hits(result: ToolResult) -> Iterator[tuple[str, str, str]]:
    """Title, address and excerpt of each hit of a search."""
    named = result.fields.get("search_results", ())
    excerpts = _ENTRY.split(result.text)[1:]
    for index, hit in enumerate(named):
        excerpt = excerpts[index] if index < len(excerpts) else ""
        yield str(hit.get("title", "")), str(hit.get("url", "")), excerpt


def _holds(excerpt: str, answer: str) -> bool:
    words = normal(answer)
    return bool(words) and f" {words} " in f" {normal(excerpt)} "


def _print_nothing(line: str) -> None:
    """Programs read one object and no progress."""


def _print_report(report: AskReport) -> None:
    command_output.print_line(safe(report.answer))
    if report.fallback:
        command_output.print_note("(no answer in time: these are the last findings)")
    command_output.print_line()
    command_output.print_line(
        safe(f"{pluralize(len(report.steps), 'step')}: houston steps {report.rollout}")
    )
    good = [source for source in report.sources if source.holds_answer] or list(report.sources)
    for number, source in enumerate(good[:_SOURCES_SHOWN]):
        lead = "sources:" if number == 0 else "        "
        command_output.print_line(safe_line(f"{lead} {source.title}  {source.url}"))
    if len(good) > _SOURCES_SHOWN:
        command_output.print_line(safe(f"         and {len(good) - _SOURCES_SHOWN} more"))
