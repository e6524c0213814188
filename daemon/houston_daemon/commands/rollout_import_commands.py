"""`houston rollout import`: trajectories that were sampled elsewhere, into this home.

Reads each file whole before sending anything of it, then has the daemon store one rollout after the
other. `interchange` converts the files.
"""

import argparse
from pathlib import Path
from typing import Any

from houston_daemon.interchange.import_files import read_imports
from houston_daemon.interchange.imported_rollout import NOTHING_IMPORTED
from houston_shared import command_output
from houston_shared.config import LoadedConfiguration
from houston_shared.control_client import require_daemon, send_with_retry
from houston_shared.control_messages import ImportRollout
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.secret_redaction import install_secrets
from houston_shared.store import rollout_queries
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import pluralize


def add_rollout_import_arguments(parser: argparse.ArgumentParser) -> None:
    """`FILE…`, `--task`, `--json`."""
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        type=Path,
        help="a trajectory in ATIF (JSON), the folder of a Harbor trial, or a log of inspect_ai"
        " (.eval or JSON)",
    )
    parser.add_argument(
        "--task", default="", metavar="TASK", help="name of their task; default: that of the file"
    )
    parser.add_argument("--json", action="store_true", help="one JSON line per rollout")


def run_rollout_import(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Import them; a file that was imported before gives its rollouts again."""
    install_secrets(loaded.config)
    require_daemon(loaded.home)  # the first thing to say
    for file in arguments.files:
        messages = list(read_imports(file, arguments.task))
        for message in messages:
            _import_one(message, arguments.json, loaded)
    if not arguments.json:
        command_output.print_note(
            "Sampled elsewhere: they have no token ids, and their rows are rendered anew."
        )
    return int(ExitCode.DONE)


def _import_one(message: ImportRollout, as_json: bool, loaded: LoadedConfiguration) -> None:
    with Reader(loaded.home) as reader:
        newest_before = reader.run(rollout_queries.newest_seq())
    answer = send_with_retry(
        loaded.home, message, "It may have been imported.", "houston rollout list"
    )
    with Reader(loaded.home) as reader:
        row = reader.run(rollout_queries.find_rollout(answer.rollouts[0]))
        spec = reader.run(rollout_queries.read_rollout_spec(row))
    source = spec.elsewhere
    if source is None:
        raise HoustonError(f"{row.id} was not imported.", NOTHING_IMPORTED)
    facts: dict[str, Any] = {
        "rollout": row.id,
        "task": row.task,
        "state": row.state,
        "steps": row.steps,
        "score": row.best_score,
        "model": row.policy,
        "format": source.format,
        "agent": source.agent,
        "id": source.id,
        "left_out": source.left_out,
        "known": (answer.seq or 0) <= newest_before,
    }
    if as_json:
        command_output.print_json_line(facts)
        return
    score = "no score" if row.best_score is None else f"score {row.best_score:g}"
    suffix = ", was imported before" if facts["known"] else ""
    command_output.print_line(
        f"{row.id}  {row.state}, {pluralize(row.steps, 'step')}, {score}, {source.format}{suffix}"
    )
    for what in source.left_out:
        command_output.print_note(f"{row.id}: left out: {what}")
