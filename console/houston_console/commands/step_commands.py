"""`houston steps`, `houston context` and `houston files`: what happened at the steps of a
rollout.

Steps with calls and observations (and all that their terminals printed), the exact request of a
step, the files that steps changed with diffs. Read in short transactions, a page at a time.
"""

import argparse
import codecs
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from houston_console.commands import command_options, step_outcomes
from houston_console.commands.daemon_requests import JournalFollower
from houston_console.commands.folded_steps import FoldedStepPrinter
from houston_console.commands.output_page import OutputPage, OutputSpan, span
from houston_console.commands.remote_terminal_log import fetch_command, first_error_line
from houston_console.commands.rollout_summary import drift_words, format_local_time
from houston_shared import (
    command_arguments,
    command_output,
    secret_redaction,
    terminal_log_files,
)
from houston_shared.config import LoadedConfiguration
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.errors import ExitCode, UsageError
from houston_shared.records import (
    ENDED_STATES,
    FileChange,
    ObservationBody,
    StepRecord,
    TerminalSpan,
    ToolCall,
)
from houston_shared.safe_text import safe
from houston_shared.store import (
    annotation_queries,
    process_reward_queries,
    rollout_queries,
    step_context,
    step_json,
    step_queries,
    workspace_queries,
)
from houston_shared.store.annotation_queries import VerdictRow
from houston_shared.store.journal_events import OPEN_END, ReadPlan
from houston_shared.store.process_reward_queries import ProcessRewardRow
from houston_shared.store.rollout_queries import RolloutRow
from houston_shared.store.step_context import ContextSurroundings, ContextView
from houston_shared.store.store_reader import Reader
from houston_shared.store.workspace_queries import (
    FileEditRow,
    FileHistoryRow,
    RecordedFileEdit,
    SearchRow,
)
from houston_shared.times_and_counts import format_clock, local_time, pluralize

MAX_TEXT_LINES = 12
"""Lines of a thought or an observation that are shown without --full."""
AGENT_BAR, PERSON_BAR = "  │ ", "  ┃ "
"""Bars before what an agent or its tools wrote and before a person's words: no text can fake one,
because every line of it stands behind its own."""
_MAX_ARGUMENT_CHARACTERS = 60
"""Characters of an argument's value on a call's line."""


def call_line(call: ToolCall, limit: int) -> str:
    """A call on one line; values longer than `limit` characters are cut."""
    words = [f"{name}={_argument_value(value, limit)}" for name, value in call.arguments.items()]
    return " ".join([call.name, *words])


def _argument_value(value: Any, limit: int) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"


def file_line(change: FileChange) -> str:
    """A changed file on one line."""
    note = f" ({change.note})" if change.note else ""
    return f"{change.kind} {change.path} +{change.added} −{change.removed}{note}"


def print_step(
    page: OutputPage,
    record: StepRecord,
    verdict: str | None,
    full: bool,
    reward: ProcessRewardRow | None = None,
) -> None:
    """A whole step; `full` leaves nothing out."""
    sample = record.sample
    title = f"step {record.step}" + (f" attempt {record.attempt}" if record.attempt > 1 else "")
    times = (format_local_time(record.at), format_clock(record.active_seconds))
    facts = filter(None, (*times, sample.policy, drift_words(sample.drift)))
    page.line(span(title, "name"), span("  " + " · ".join(facts), "dim"))
    lines, characters = (0, 10**6) if full else (MAX_TEXT_LINES, _MAX_ARGUMENT_CHARACTERS)
    page.block(sample.thought, AGENT_BAR, limit=lines)
    _print_calls(page, record, characters)
    page.block(step_json.observation_as_seen(record), f"  {AGENT_BAR}", "dim", lines)
    for message in record.guidance:
        page.line(PERSON_BAR, span(f"{message.author} said: {message.text}", "person"))
    if record.observation:
        _print_observed(page, record.observation)
    for mark in record.aside:
        page.line("  ", span(step_queries.describe_quarantine(mark), "bad"))
    _print_attempts(page, record, full)
    if verification := step_json.verification_line(record):
        page.line("  ", span(verification))
    if verdict:
        page.line("  ", span(f"verdict: {verdict}"))
    if reward:
        text = f"process reward: {reward.score:.2f} by {reward.policy}"
        page.line("  ", span(text, "bad" if reward.weak else ""))


def _print_calls(page: OutputPage, record: StepRecord, characters: int) -> None:
    """The calls with what came of each. characters: of a call's arguments, at most."""
    sample = record.sample
    for call, outcome in zip(sample.calls, step_outcomes.step_outcomes(record), strict=True):
        duration = step_outcomes.shown_duration(outcome.seconds)
        words = "".join(f"  {part}" for part in (outcome.result, duration) if part)
        page.line(
            "  → ",
            span(call_line(call, characters), "call"),
            span(words, "bad" if outcome.failed else "dim"),
        )
    if sample.malformed:
        page.line("  ", span(f"no action: {sample.malformed}", "bad"))


def _print_observed(page: OutputPage, closed: ObservationBody) -> None:
    """Which files changed, and which signals the step has."""
    for changed in closed.files:
        page.line("  ", span(file_line(changed)))
    if closed.more_files:
        page.line(f"  … {pluralize(closed.more_files, 'more file')}")
    for name in closed.attention:
        reason_text = f" ({closed.reasons[name]})" if closed.reasons.get(name) else ""
        page.line("  ", span(f"attention: {name}{reason_text}", "bad"))


def _print_attempts(page: OutputPage, record: StepRecord, full: bool) -> None:
    """How a step was purified, and what else was tried; `full` shows that whole."""
    if line := step_json.purification_line(record):
        page.line("  ", span(line, "name"))
    for attempt in record.others:
        page.line("  ", span(step_json.attempt_name(attempt), "dim"))
        if not full:
            continue
        page.block(attempt.sample.thought, f"    {AGENT_BAR}", "dim", 0)
        for call in attempt.sample.calls:
            page.line("    → ", span(call_line(call, 10**6), "dim"))
        for result in attempt.results:
            page.block(result.text, f"    {AGENT_BAR}", "dim", 0)


_BLOCK_BYTES = 1 << 20
_SHELL_MARK = re.compile("\x1b\\]7771;[^\x07\x1b]{0,90}\x07")


def print_terminal_output(
    page: OutputPage, home: Path, host_root: str, rollout: str, printed: TerminalSpan
) -> None:
    """All that one terminal printed during a step, under a line that says what it is.

    home: where the rollout's machines are known, for logs that are on another one.
    """
    size = printed.end - printed.start
    title = f"{size:,} bytes of terminal {printed.terminal} on {printed.host}"
    page.line("  ", span(title, "name"))
    folder = terminal_log_files.terminals_folder(Path(host_root), rollout) / printed.terminal
    inside = terminal_log_files.is_terminal_name(printed.terminal)
    if printed.host != LOCAL_HOST:
        _print_remote_output(page, home, rollout, printed)
        return
    note = "its log is not on this machine"
    try:
        if host_root and inside and folder.is_dir():
            parts = terminal_log_files.read_log_blocks(folder, printed.start, printed.end)
            _print_blocks(page, parts)
            note = f"byte for byte in {folder}"
    except PermissionError:  # the home's group may look at the journal, not into its host's folder
        note = "its log may not be read by this user"
    except FileNotFoundError:
        note = "its log was removed while it was read"
    page.line("    ", span(note, "dim"))


def _print_remote_output(page: OutputPage, home: Path, rollout: str, printed: TerminalSpan) -> None:
    """The same from another machine; where it cannot be reached, that is said."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "log"
        terminal = (printed.host, printed.terminal)
        command = fetch_command(home, rollout, terminal, file, printed.start, printed.end)
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if result.returncode:
            reason = first_error_line(result.stderr) or "it could not be read"
            page.line("    ", span(f"its log is on the host {printed.host}, not here", "dim"))
            page.line("    ", span(reason, "dim"))
            return
        _print_blocks(page, _file_blocks(file))


def _file_blocks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        while data := opened.read(_BLOCK_BYTES):
            yield data


def _print_blocks(page: OutputPage, parts: Iterator[bytes]) -> None:
    for text in _decode_lines(parts):
        page.line("    │ ", safe(secret_redaction.redact(_SHELL_MARK.sub("", text))))


def _decode_lines(parts: Iterator[bytes]) -> Iterator[str]:
    """Lines of text; what is not UTF-8 is U+FFFD, and no block's edge shows."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest: list[str] = []
    for part in parts:
        *whole_lines, last = decoder.decode(part).split("\n")
        for line in whole_lines:
            yield "".join([*rest, line]).removesuffix("\r")
            rest = []
        rest.append(last)
    if tail := "".join([*rest, decoder.decode(b"", True)]):
        yield tail.removesuffix("\r")


STEPS_PER_READ = 50
"""Steps of one read: short transactions, whatever the length of the rollout."""

VerdictsByStep = Mapping[tuple[int, int], VerdictRow]
RewardsByStep = Mapping[tuple[int, int], ProcessRewardRow]
ClosedSteps = tuple[list[StepRecord], VerdictsByStep, RewardsByStep, int]
"""Steps that are over, verdicts and process rewards on them, and the newest step."""
PlanRunner = Callable[[Callable[[], ReadPlan[ClosedSteps]]], ClosedSteps]
"""Runs the plan that it is given the maker of."""
StepPrinter = Callable[[list[StepRecord], VerdictsByStep, RewardsByStep], None]


def add_steps_arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--from`, `--to`, `-n`, `-f`, `--fold`, `--full`, `--printed`, `--json`."""
    command_options.add_place_argument(parser, "STEP, R@STEP-STEP")
    number = command_options.positive_int
    parser.add_argument(
        "--from", dest="first", type=number, default=1, metavar="N", help="first step (1)"
    )
    parser.add_argument(
        "--to",
        dest="last",
        type=number,
        default=OPEN_END,
        metavar="N",
        help="last step (the newest)",
    )
    parser.add_argument("-n", dest="newest", type=number, metavar="N", help="only the last N")
    parser.add_argument("-f", "--follow", action="store_true", help="continue as steps close")
    parser.add_argument(
        "--fold",
        action="store_true",
        help="one line per step, as in the console; equal failures share a line",
    )
    parser.add_argument("--full", action="store_true", help="leave nothing out")
    parser.add_argument(
        "--printed", action="store_true", help="all that its terminals printed, from their logs"
    )
    command_options.add_json_option(parser, "one JSON line per closed step")


def run_steps(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Show closed steps, oldest first."""
    if arguments.fold and arguments.printed:
        raise UsageError(
            "--fold has one line a step, without what terminals printed.",
            next=f"houston steps {arguments.rollout} --printed",
        )
    if arguments.printed:  # logs are on disk as they were printed
        secret_redaction.install_secrets(loaded.config)
    place = command_arguments.parse_permalink(arguments.rollout)
    if place.first:
        arguments.first = max(arguments.first, place.first)
        arguments.last = min(arguments.last, place.last)
    with Reader(loaded.home) as reader:
        rollout = reader.run(rollout_queries.find_rollout(place.rollout))
        command_options.note_archived(reader, rollout.id)
        quarantined = reader.run(step_queries.list_quarantined_events(rollout.id))
        for loss in step_queries.group_repair_losses(quarantined):
            command_output.print_note(f"{rollout.id}: {step_queries.describe_repair_loss(loss)}.")
        first = arguments.first
        if arguments.newest:
            first = max(first, min(rollout.steps, arguments.last) - arguments.newest + 1)
        host_root = ""
        if arguments.printed:
            host_root = reader.run(rollout_queries.read_rollout_spec(rollout)).host_root
        show = _step_printer(rollout.id, arguments, loaded.home.path, host_root)
        folded = None
        if arguments.fold and not arguments.json:
            folded = FoldedStepPrinter(OutputPage(), arguments.full, not arguments.follow)
            show = folded.show
        if arguments.follow:
            after = _follow_steps(loaded, reader, rollout, first, arguments.last, show)
        else:
            after = _print_pages(
                lambda plan: reader.run(plan()), rollout.id, first, arguments.last, show
            )
        if folded:
            folded.flush()
        if place.first and after == first <= arguments.last:
            raise command_options.missing_steps_text(rollout, place)
        if after == first:
            command_output.print_note(_no_steps_text(rollout, first, arguments.last))
    return int(ExitCode.DONE)


def _no_steps_text(rollout: RolloutRow, first: int, last: int) -> str:
    """What steps there are, where none of those that were asked for is over."""
    if not rollout.steps:
        return f"{rollout.id} has no closed step yet."
    bounds = f"from {first} on" if last >= OPEN_END else f"from {first} to {last}"
    extent = "step 1 is" if rollout.steps == 1 else f"steps 1 to {rollout.steps} are"
    return f"{rollout.id} has no step {bounds}: {extent} there (houston steps {rollout.id} -n 1)."


def _step_printer(
    rollout: str, arguments: argparse.Namespace, home: Path, host_root: str
) -> StepPrinter:
    page = OutputPage()

    def show(records: list[StepRecord], verdicts: VerdictsByStep, rewards: RewardsByStep) -> None:
        for record in records:
            key = (record.step, record.attempt)
            reward = rewards.get(key)
            line = step_json.step_json(rollout, record, verdicts.get(key), reward)
            if arguments.json:
                command_output.print_json_line(line)
            else:
                print_step(page, record, line["verdict"], arguments.full, reward)
                spans = record.observation.spans if record.observation and arguments.printed else ()
                for span in spans:
                    print_terminal_output(page, home, host_root, record.inherited or rollout, span)
        page.flush()

    return show


def _follow_steps(
    loaded: LoadedConfiguration,
    reader: Reader,
    rollout: RolloutRow,
    first: int,
    last: int,
    show: StepPrinter,
) -> int:
    """Go on until the rollout has ended, or the range; returns the number of the next step."""
    with JournalFollower(loaded.home, reader) as following:
        while True:
            # Looked at before its steps are: a rollout that has ended closes no more of them.
            row = following.read(lambda: rollout_queries.find_rollout(rollout.id))
            ended = row.state in ENDED_STATES
            first = _print_pages(following.read, rollout.id, first, last, show)
            if ended:
                command_output.print_note(f"{rollout.id} has ended.")
            if ended or first > last:
                return first
            following.wait_while_read()


def _print_pages(run: PlanRunner, rollout: str, first: int, last: int, show: StepPrinter) -> int:
    """Show steps that are over from `first` on; returns the number of the next one."""
    while first <= last:
        end = min(last, first + STEPS_PER_READ - 1)
        records, verdicts, rewards, newest = run(partial(read_closed_steps, rollout, first, end))
        show(records, verdicts, rewards)
        if end >= newest:
            return records[-1].step + 1 if records else first
        first = end + 1
    return first


def read_closed_steps(rollout: str, first: int, last: int) -> ReadPlan[ClosedSteps]:
    """Closed steps, and those that a repair has left without an end."""
    records = yield from step_queries.read_steps_with_attempts(rollout, first, last)
    marked = yield from step_queries.mark_quarantined_steps(rollout, records, first, last)
    verdicts = yield from annotation_queries.list_verdicts(rollout, first, last)
    rewards = yield from process_reward_queries.list_process_rewards(rollout, first, last)
    newest = yield from step_queries.find_last_step(rollout)
    ended = (yield from rollout_queries.find_rollout(rollout)).state in ENDED_STATES
    over = [
        step
        for step in marked
        if step.observation is not None or (step.aside and (ended or step.step < newest))
    ]
    newest = max([newest, *(step.step for step in over)])
    return over, annotation_queries.effective_verdicts(verdicts), rewards, newest


def add_context_arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `STEP`, `--attempt`, `--tokens`, `--json`."""
    command_options.add_place_argument(parser)
    command_options.add_step_argument(parser, "its number, from 1")
    parser.add_argument(
        "--attempt",
        type=command_options.positive_int,
        metavar="N",
        help="show an attempt that was replaced",
    )
    parser.add_argument("--tokens", action="store_true", help="token ids instead of their text")
    parser.add_argument(
        "--diff", action="store_true", help="what was added and removed since the previous step"
    )
    command_options.add_json_option(parser, "one JSON object")


def run_context(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Print the text on stdout, and on stderr what it is."""
    name, step = command_arguments.parse_step_reference(arguments.rollout, arguments.step)
    if not step:
        raise UsageError("Name one step.", "", "houston context R@STEP")
    with Reader(loaded.home) as reader:
        rollout = reader.run(rollout_queries.resolve_rollout_id(name))
        command_options.note_archived(reader, rollout)
        view = step_context.read_context(reader, rollout, step, arguments.attempt)
        if arguments.diff:
            surroundings = reader.run(step_context.read_context_surroundings(rollout, step))
            _print_difference(view, surroundings, arguments.json)
            return int(ExitCode.DONE)
    if arguments.json:
        command_output.print_json_line(step_context.context_as_json(view))
        return int(ExitCode.DONE)
    command_output.print_note(_request_summary(view))
    if view.note:
        command_output.print_note(view.note)
    if not arguments.tokens:
        OutputPage().line(view.rendered)
        if view.token_ids is None and view.tools:
            OutputPage().line(
                "[tools]\n" + "\n".join(msgspec.json.encode(t).decode() for t in view.tools)
            )
    elif view.token_ids is not None:
        command_output.print_line(" ".join(map(str, view.token_ids)))
    return int(ExitCode.DONE)


def _print_difference(view: ContextView, surroundings: ContextSurroundings, as_json: bool) -> None:
    """What the request has that the one before had not, and the other way round."""
    change = step_context.compare_contexts(surroundings.before or [], view.messages)
    step = view.sample.step
    if as_json:
        as_object = step_context.context_change_as_json(change, surroundings, step)
        return command_output.print_json_line(as_object)
    command_output.print_note(_request_summary(view))
    for summary in surroundings.summarised:
        since = f"since step {summary.before}" + f", written by {summary.by}" * bool(summary.by)
        command_output.print_note(f"Steps {summary.first} to {summary.last} are a summary {since}.")
    is_first = surroundings.before is None
    before = "(there is no step before)" if is_first else f"as in step {step - 1}"
    command_output.print_note(
        f"{change.kept} messages {before}, {len(change.gone)} gone, {len(change.new)} new."
    )
    page = OutputPage()
    for sign, tone, messages in (("-", "bad", change.gone), ("+", "good", change.new)):
        for number, message in messages:
            page.line(span(f"{sign} {number} ", tone), span(message.role, "name"))
            page.block(message.content, f"{sign}   ")
            for call in message.calls:
                page.line(f"{sign}   ", span(f"{call.name} {call.arguments}", "call"))


def _request_summary(view: ContextView) -> str:
    sample, parent = view.sample, view.parent
    size = "without token ids" if view.token_ids is None else f"{len(view.token_ids)} tokens"
    prefix = f", {sample.kept} kept from step {parent.step}" if parent and sample.kept else ""
    cached = "" if sample.cached_tokens is None else f", {sample.cached_tokens} cached"
    return f"{sample.rollout} step {sample.step}: {drift_words(view.drift)}, {size}{prefix}{cached}"


DIFFS_PER_READ = 40
"""Diffs of one read: short transactions, whatever the length of the history."""
_DIFF_TONES = {"+": "good", "-": "bad", "@": "dim"}


def add_files_arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `PATH`, `--searches`, `--json`."""
    command_options.add_place_argument(parser, "STEP")
    parser.add_argument(
        "path", nargs="?", default="", metavar="PATH", help="every change of this file"
    )
    parser.add_argument("--searches", action="store_true", help="what the agent searched")
    command_options.add_json_option(parser, "one JSON line per file, change or search")


def run_files(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Print files and changes, the newest first."""
    place = command_arguments.parse_permalink(arguments.rollout)
    if arguments.searches and arguments.path:
        raise UsageError("--searches has no file.")
    with Reader(loaded.home) as reader:
        row = reader.run(rollout_queries.find_rollout(place.rollout))
        rollout = row.id
        if place.first > row.steps:
            raise command_options.missing_steps_text(row, place)
        command_options.note_archived(reader, rollout)
        if arguments.searches:
            searches = reader.run(workspace_queries.list_newest_searches(rollout))
            _print_searches(searches, place, arguments.json)
        elif arguments.path or place.first:
            first, last = place.first or 1, place.last or OPEN_END
            plan = workspace_queries.list_file_edits(rollout, arguments.path, first, last)
            edits = reader.run(plan)
            for at in range(0, len(edits), DIFFS_PER_READ):
                part = edits[at : at + DIFFS_PER_READ]
                diffs = reader.run(workspace_queries.read_file_diffs(part))
                _print_diffs(part, diffs, arguments.json)
            if not edits:
                command_output.print_note(
                    f"No such file was changed; all files: houston files {rollout}"
                )
        else:
            _print_files(reader.run(workspace_queries.list_changed_files(rollout)), arguments.json)
    return int(ExitCode.DONE)


def _print_files(files: Iterable[FileHistoryRow], as_json: bool) -> None:
    rows = list(files)
    if as_json:
        for row in rows:
            command_output.print_json_line(row)
        return
    OutputPage().table(
        ("FILE", "CHANGES#", "ADDED#", "REMOVED#", "LAST STEP#"),
        [
            (
                span(row.path, "name"),
                span(row.changes),
                span(f"+{row.added}", "good"),
                span(f"-{row.removed}", "bad"),
                span(row.last_step),
            )
            for row in rows
        ],
    )
    if not rows:
        command_output.print_note("No step has changed a file.")
    elif len(rows) == workspace_queries.MAX_CHANGED_FILES:
        command_output.print_note(
            f"These are the {workspace_queries.MAX_CHANGED_FILES} most recently changed files."
        )


def _print_diffs(
    edits: Iterable[FileEditRow], changes: Iterable[RecordedFileEdit], as_json: bool
) -> None:
    page = OutputPage()
    for edit, change in zip(edits, changes, strict=True):
        if as_json:
            command_output.print_json_line(workspace_queries.file_edit_json(change, edit))
            continue
        page.line(*_change_head(edit))
        for text in change.change.diff.splitlines():
            page.line("  ", span(text, _DIFF_TONES.get(text[:1], "")))
        if change.change.note or not change.change.diff:
            page.line("  ", span(change.change.note or "no text to compare", "dim"))


def _change_head(edit: FileEditRow) -> tuple[OutputSpan, ...]:
    counts, when = f"{edit.kind} +{edit.added} -{edit.removed}", local_time(edit.at)
    return (
        span(f"step {edit.step} ", "name"),
        span(edit.path),
        span(f"  {counts}  agent {edit.tools}  {when}", "dim"),
    )


def _print_searches(
    searches: Iterable[SearchRow], place: command_arguments.StepReference, as_json: bool
) -> None:
    page = OutputPage()
    for search in searches:
        if place.first and not place.first <= search.step <= place.last:
            continue
        if as_json:
            fields = ("step", "kind", "query", "results")
            command_output.print_json_line({name: getattr(search, name) for name in fields})
        else:
            page.line(
                span(f"step {search.step} ", "name"),
                span(f"{search.kind} ", "call"),
                span(search.query),
                span(f"  {search.results} found", "dim"),
            )
