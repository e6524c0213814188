"""`houston train list|show|cancel`: training runs, how far they are, and ending one.

Checkpoints of a cancelled run stay. Starting a run is a command of the daemon.
"""

import argparse

from houston_console.commands import (
    command_options,
    daemon_requests,
    policy_report,
    policy_view_commands,
)
from houston_console.commands.output_page import OutputPage, OutputSpan, span
from houston_console.commands.policy_report import ReportLine
from houston_console.commands.rollout_summary import STATE_TONES, cut_text
from houston_shared import command_output, policy_and_run_files
from houston_shared.config import LoadedConfiguration
from houston_shared.control_messages import CancelTraining
from houston_shared.errors import ExitCode, NotFound
from houston_shared.home_lock import find_running_daemon
from houston_shared.hub_models import hub_origin
from houston_shared.policy_and_run_files import TrainingProgress
from houston_shared.store import policy_queries
from houston_shared.store.policy_queries import TrainingRunRow
from houston_shared.store.store_reader import Reader
from houston_shared.store.training_event_bodies import ENDED_RUN_STATES
from houston_shared.times_and_counts import local_time
from houston_shared.training_figures import RunFigures, read_run_figures

MAX_PROGRESS_CHARACTERS = 100
"""Characters of how it stands; --json has all."""


def add_train_list_arguments(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    command_options.add_json_option(parser, "one JSON line per run")


def run_train_list(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """List training runs, the oldest first."""
    with Reader(loaded.home) as reader:
        rows = reader.run(policy_queries.list_training_runs())
    runs = [(row, policy_and_run_files.read_training_progress(loaded.home, row.id)) for row in rows]
    if arguments.json:
        for run, progress in runs:
            command_output.print_json_line(policy_queries.training_run_json(run, progress))
    elif runs:
        daemon = find_running_daemon(loaded.home) is not None
        titles = ("run", "kind", "state", "became", "queued", "how it stands")
        OutputPage().table(titles, [_run_row(*run, daemon) for run in runs])
    else:
        command_output.print_note(
            "Nothing was trained in this home.\n  next: houston train sft --help"
        )
    return int(ExitCode.DONE)


def run_progress_text(run: TrainingRunRow, progress: TrainingProgress | None, daemon: bool) -> str:
    """How a run stands, in words. daemon: whether one holds the home."""
    if run.state == "running" and not daemon and not run.alone:
        return "continues from its last checkpoint when the daemon is back"
    if run.cancelling and run.state == "running":
        return f"is being cancelled by {run.cancelling.removeprefix('person:')}"
    if run.reason or run.state == "queued":
        return run.reason
    if (
        progress is not None
        and run.state in ENDED_RUN_STATES
        and progress.state not in ENDED_RUN_STATES
    ):
        return f"ended at step {progress.step:,} of {progress.steps:,}"
    return policy_and_run_files.describe_training_progress(progress)


def _run_row(
    run: TrainingRunRow, progress: TrainingProgress | None, daemon: bool
) -> tuple[OutputSpan, ...]:
    alone = ", alone" if run.alone else ""
    return (
        span(run.id, "name"),
        span(run.algorithm),
        span(f"{run.state}{alone}", STATE_TONES.get(run.state, "")),
        span(run.policy or "–"),
        span(local_time(run.queued_at), "dim"),
        span(cut_text(run_progress_text(run, progress, daemon), MAX_PROGRESS_CHARACTERS)),
    )


def add_train_show_arguments(parser: argparse.ArgumentParser) -> None:
    """`RUN`, `--json`."""
    command_options.add_run_argument(parser)
    command_options.add_json_option(parser, "one JSON object")


def run_train_show(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Show one training run."""
    with Reader(loaded.home) as reader:
        run = resolve_training_run(reader, arguments.run)
        request = reader.run(policy_queries.read_training_request(run))
    progress = policy_and_run_files.read_training_progress(loaded.home, run.id)
    folder = policy_and_run_files.training_run_folder(loaded.home, run.id)
    figures = read_run_figures(folder)
    if arguments.json:
        line = policy_queries.training_run_json(run, progress)
        line |= policy_queries.training_request_json(request)
        line |= policy_report.figures_json(figures)
        command_output.print_json_line(line)
        return int(ExitCode.DONE)
    page = OutputPage()
    daemon = find_running_daemon(loaded.home) is not None
    page.line(
        span(run.id, "name"), f"  {run.algorithm}, {run.state}, queued {local_time(run.queued_at)}"
    )
    facts = [("stands", run_progress_text(run, progress, daemon))]
    facts += [("became", run.policy)] if run.policy else []
    facts += [("begun", f"{run.starts} times")] if run.starts > 1 else []
    if request is not None:
        facts += [("from", request.parent or hub_origin(request.base) or request.base)]
        facts += [("rollouts", ", ".join(request.rollouts))] if request.rollouts else []
        recipe = policy_view_commands.format_settings(request.recipe)
        facts += [("recipe", recipe)] if request.recipe else []
    for title, text in [*facts, ("files", f"{folder} (log.txt, output.txt)")]:
        page.line(span(f"  {title:<9} ", "dim"), span(text))
    policy_view_commands.print_report(page, run_report(run, figures), figures.curves)
    return int(ExitCode.DONE)


def run_report(run: TrainingRunRow, figures: RunFigures) -> list[ReportLine]:
    """What a run was trained on, its held-out loss, and why it has no curve where it has none."""
    lines = [*policy_report.data_lines(figures.data)] if figures.data else []
    if run.kind == "sft":
        lines += policy_report.held_out_lines(figures.held_out, figures.curves)
    lines += policy_report.validation_lines(figures)
    lines += policy_report.stale_critic_lines(figures)
    missing = policy_report.no_curve_line(run, figures)
    return [*lines, missing] if missing else lines


def resolve_training_run(reader: Reader, name: str) -> TrainingRunRow:
    """The run of that name, or of a unique beginning or ending of one. Raises HoustonError."""
    full = policy_and_run_files.full_run_name(reader.home, name)
    run = reader.run(policy_queries.find_training_run(full))
    if run is None:
        raise NotFound(f"There is no training run {name!r}.", next="houston train list")
    return run


def add_train_cancel_arguments(parser: argparse.ArgumentParser) -> None:
    """`RUN`, `--reason`, `--as`, `--json`."""
    command_options.add_run_argument(parser)
    parser.add_argument("--reason", default="", metavar="TEXT", help="why; kept in the journal")
    command_options.add_speaker_option(parser)
    command_options.add_json_option(parser, "one JSON object: the run as `train list`")


def run_train_cancel(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Ask the daemon to cancel a training run."""
    with Reader(loaded.home) as reader:
        run = resolve_training_run(reader, arguments.run)
        claimed = daemon_requests.claimed_name(arguments, loaded)
        message = CancelTraining(run=run.id, reason=arguments.reason, claimed=claimed)
        look = f"houston train show {run.id}"
        daemon_requests.send_request(loaded, message, "It may have been heard.", look)
        now = resolve_training_run(reader, run.id)
        count = len(reader.run(policy_queries.list_unfinished_rollouts(run.id)))
    if arguments.json:
        command_output.print_json_line(policy_queries.training_run_json(now, None))
    elif now.state == "cancelled":
        command_output.print_line(f"{now.id} is cancelled.")
    else:
        command_output.print_line(
            f"{now.id}: cancel was requested; it ends once its checkpoint is written."
        )
    if count:
        command_output.print_note(
            f"Rollouts that it started keep running, {count:,} so far:"
            f" --resume {now.id} picks them up.\n"
            f"  next: houston rollout cancel --run {now.id}"
        )
    return int(ExitCode.DONE)
