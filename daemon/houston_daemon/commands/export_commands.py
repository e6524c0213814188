"""`houston export`: rows of rollouts as a file that another program trains on.

Also holds the flags that select rollouts (`R…`, `--task`, `--group`, `--all`) and those that say
how rows are made, for `judge` and `train sft`. Imports neither torch nor pyarrow. Rows are made
in `training.rows`, formats are written in `training.export`.
"""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from houston_daemon.artifacts.export_destination import open_destination
from houston_daemon.engines.hub_access import redact_hub_token, require_repository
from houston_daemon.engines.hub_downloads import find_model
from houston_daemon.interchange.atif_export import ATIF, ATIF_DESCRIPTION, write_trajectories
from houston_daemon.training.export.dataset_card import elsewhere_sentence, ids_source_words
from houston_daemon.training.export.dataset_push import push_dataset
from houston_daemon.training.export.export_manifest import ExportManifest
from houston_daemon.training.export.export_recipe import RECIPES, choose_export_recipe
from houston_daemon.training.export.export_run import (
    FORMATS,
    ExportRequest,
    ExportResult,
    choose_format,
    write_export,
)
from houston_daemon.training.export.held_out_split import parse_held_out
from houston_daemon.training.rows.rule_verdicts import RulesFrom
from houston_daemon.training.rows.training_row import RowOptions
from houston_shared import command_output, secret_redaction
from houston_shared.command_arguments import whole_number
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ConfigurationError, ExitCode, UsageError
from houston_shared.home import Home
from houston_shared.sample_roles import ROW_ROLES, STEP_ROLES, parse_row_roles
from houston_shared.store.rollout_queries import RolloutSelection, select_rollout_ids
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import pluralize


def add_selection_arguments(parser: argparse.ArgumentParser, subject: str = "rollouts") -> None:
    """The arguments. subject: the help of `R…`."""
    parser.add_argument(
        "rollouts", metavar="R", nargs="*", help=f"{subject}, by id or a part of it"
    )
    parser.add_argument("--task", default="", metavar="TASK", help="all rollouts of a task")
    parser.add_argument("--group", default="", metavar="G", help="all rollouts of a group")
    parser.add_argument("--all", action="store_true", help="all rollouts of the home")


def read_selection(arguments: argparse.Namespace) -> RolloutSelection:
    """What they were given."""
    return RolloutSelection(
        tuple(arguments.rollouts), arguments.task, arguments.group, bool(arguments.all)
    )


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Rollouts, a format, a folder; how rows are made; how often and in which order they stand."""
    add_selection_arguments(parser)
    parser.add_argument(
        "--run",
        default="",
        metavar="RUN",
        help="rows with advantages of the finished groups of a run of reinforcement learning",
    )
    formats = "; ".join(f"{name}: {format.description}" for name, format in FORMATS.items())
    formats += f"; {ATIF}: {ATIF_DESCRIPTION}"
    parser.add_argument(
        "--format", required=True, choices=(*FORMATS, ATIF), metavar="F", help=formats
    )
    parser.add_argument(
        "--out",
        default="",
        metavar="DIR|URL",
        help="folder to write, also in a store: s3://bucket/prefix (exports/ of the home)",
    )
    parser.add_argument("--parquet", action="store_true", help="data.parquet, not data.jsonl")
    parser.add_argument(
        "--as-named", action="store_true", help="rollouts in the order of R…, not by id"
    )
    add_row_arguments(parser)
    roles = f"roles whose answers are trained ({','.join(ROW_ROLES)})"
    parser.add_argument("--roles", default="", metavar="ROLE,…", help=roles)
    add_rules_argument(parser)
    recipes = f"how often and in which order rows occur: {', '.join(RECIPES)}, or a TOML file"
    parser.add_argument("--recipe", default="once", metavar="RECIPE", help=recipes)
    parser.add_argument(
        "--seed", type=whole_number(), default=0, help="seed of shuffling and of the split"
    )
    parser.add_argument(
        "--held-out",
        nargs="+",
        action="extend",
        default=[],
        metavar="TASK",
        help="tasks that are not trained on, in a separate file; or a share of them, such as 0.2",
    )
    parser.add_argument(
        "--leave-out",
        action="store_true",
        help="leave out rows that the consumer would train wrongly; the manifest names them",
    )
    parser.add_argument("--force", action="store_true", help="replace another export in DIR")
    parser.add_argument(
        "--push", default="", metavar="REPO", help="push it to the data set org/name of the hub"
    )
    parser.add_argument(
        "--private",
        action="store_true",
        help="with --push: make it private; refuse one that is public",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def add_rules_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--rules`; for commands that train on rows at once, too."""
    parser.add_argument(
        "--rules",
        choices=get_args(RulesFrom),
        default="run",
        help="run: run the rules on every rollout now, whatever is stored (default); stored: use"
        " their last stored verdicts; off: no rule counts",
    )


def add_row_arguments(parser: argparse.ArgumentParser) -> None:
    """How rows are made, for who trains on them at once, too."""
    parser.add_argument(
        "--overlap",
        choices=("once", "paper"),
        default="once",
        help="once: every sampled token is trained at most once; paper: as in APOLLO, steps that a"
        " fork keeps are trained on both sides of it",
    )
    parser.add_argument("--no-masking", action="store_true", help="train masked steps, too")
    parser.add_argument(
        "--no-summaries", action="store_true", help="train no summaries: as --roles policy"
    )
    parser.add_argument(
        "--unjudged",
        choices=("keep", "mask"),
        default="keep",
        help="steps that nobody judged (keep)",
    )
    parser.add_argument(
        "--attempts",
        choices=("purified", "raw"),
        default="purified",
        help="for purified steps: the replacement, or all that was sampled (purified)",
    )
    parser.add_argument(
        "--thoughts", choices=("strip",), help="leave thoughts out, train actions only"
    )
    parser.add_argument(
        "--dialect", default="", metavar="DIALECT", help="dialect of the rendered rows"
    )
    parser.add_argument(
        "--tokenizer",
        default="",
        metavar="PATH|ID",
        help="tokenizer of the trained model: a file, a folder, or org/name@revision of the hub",
    )
    parser.add_argument(
        "--window",
        type=whole_number(),
        default=0,
        metavar="TOKENS",
        help="window of the trained model: where its rollouts shorten tools, rows do, too",
    )


def run_export(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Export. Raises HoustonError where a row would be mistrained, naming it."""
    repo = _pushed_to(arguments)
    if repo:
        redact_hub_token()
    secret_redaction.install_secrets(loaded.config)
    if arguments.format == ATIF:
        return _export_trajectories(arguments, loaded)
    choose_format(arguments.format, arguments.parquet)
    request = _read_request(arguments, loaded)
    choose = _with_run if arguments.run else _with_selection
    request = choose(request, arguments, loaded)
    default = _default_folder(loaded.home, request)
    with open_destination(arguments.out, default, arguments.force) as destination:
        result = write_export(loaded.home, request, destination.folder)
        origin = push_dataset(result, repo, private=arguments.private) if repo else ""
    _say_exported(result, arguments.json, origin, destination.place)
    return int(ExitCode.DONE)


def _read_request(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> ExportRequest:
    """What was asked for, without its rollouts."""
    return ExportRequest(
        rollouts=(),
        format=arguments.format,
        rows=read_export_rows(arguments, loaded.home),
        recipe=choose_export_recipe(arguments.recipe, arguments.seed),
        held_out=parse_held_out(arguments.held_out, arguments.seed),
        parquet=arguments.parquet,
        leave_out=arguments.leave_out,
        force=arguments.force,
        rules=arguments.rules,
        people_by_name=loaded.config.export.people_by_name,
    )


def _export_trajectories(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Whole rollouts, a file each. Raises HoustonError for options that say how rows are made."""
    by_name = loaded.config.export.people_by_name
    plain = ExportRequest((), ATIF, force=arguments.force, people_by_name=by_name)
    if arguments.run or arguments.push or _read_request(arguments, loaded) != plain:
        raise UsageError(
            f"{ATIF} holds whole rollouts and no rows: it takes no option that says how rows are"
            " made, masked, repeated, held out or pushed.",
            "Nothing was exported.",
            f"--format {ATIF} takes rollouts, --out, --as-named, --force and --json",
        )
    with Reader(loaded.home) as reader:
        rollouts = reader.run(
            select_rollout_ids(
                read_selection(arguments), "Nothing was exported.", arguments.as_named
            )
        )
        default = loaded.home.path / "exports" / ATIF
        with open_destination(arguments.out, default, arguments.force) as to:
            written = [*write_trajectories(reader, rollouts, to.folder, arguments.force, by_name)]
    for rollout, file, steps, is_new in written:
        place = f"{to.place}/{file.relative_to(to.folder)}"
        if arguments.json:
            facts = {"rollout": rollout, "file": place, "steps": steps, "written": is_new}
            command_output.print_json_line(facts)
        else:
            already = "" if is_new else " (the same was there)"
            command_output.print_line(f"{place}: {pluralize(steps, 'step')} of {rollout}{already}.")
    return int(ExitCode.DONE)


def _pushed_to(arguments: argparse.Namespace) -> str:
    """The data set of `--push`; empty without it. Raises HoustonError before anything is made."""
    if arguments.push:
        return require_repository(arguments.push, "Nothing was exported.")
    if arguments.private:
        raise UsageError(
            "--private is only for a data set that is pushed.",
            "Nothing was exported.",
            "Name it: --push org/name",
        )
    return ""


def read_export_rows(arguments: argparse.Namespace, home: Home) -> RowOptions:
    """How rows are made, with `--roles`. Raises ConfigurationError for a role that has no rows."""
    rows = read_row_options(arguments, home)
    if not arguments.roles:
        return rows
    named = parse_row_roles(arguments.roles.split(","), "Nothing was exported.")
    roles = tuple(role for role in named if role in rows.roles)
    if not roles:
        raise ConfigurationError(
            f"--no-summaries leaves nothing of --roles {arguments.roles}.", "Nothing was exported."
        )
    return replace(rows, roles=roles)


def _with_selection(
    request: ExportRequest, arguments: argparse.Namespace, loaded: LoadedConfiguration
) -> ExportRequest:
    """The request for the rollouts that were named."""
    if FORMATS[request.format].credited:
        return request  # who writes it says what is missing
    with Reader(loaded.home) as reader:
        selection = read_selection(arguments)
        rollouts = reader.run(
            select_rollout_ids(selection, "Nothing was exported.", arguments.as_named)
        )
    return replace(request, rollouts=tuple(rollouts))


def _with_run(
    request: ExportRequest, arguments: argparse.Namespace, loaded: LoadedConfiguration
) -> ExportRequest:
    """The request for the groups of a run. Raises HoustonError for options that would make other
    rows than the run trains."""
    from houston_daemon.training.rl.read_run_credits import read_run_credits  # 0.5 s

    plain = ExportRequest(
        (), request.format, parquet=request.parquet, leave_out=request.leave_out,
        force=request.force, people_by_name=request.people_by_name,
    )  # fmt: skip
    named = arguments.as_named or read_selection(arguments).is_given
    if request != plain or named:
        raise UsageError(
            "--run exports the rows that the run trains, whole: it takes no rollouts, and no option"
            " that says how rows are made, repeated or held out.",
            "Nothing was exported.",
            "--run takes --format, --out, --parquet, --leave-out, --force, --push and --json",
        )
    of_run = read_run_credits(loaded.home, arguments.run)
    return replace(
        plain,
        rollouts=tuple(credit.rollout for credit in of_run.credits),
        rows=of_run.rows,
        rules="stored",
        credits=of_run.credits,
        run=of_run.facts,
    )


def read_row_options(arguments: argparse.Namespace, home: Home) -> RowOptions:
    """The options of `add_row_arguments`; a tokenizer of the hub is fetched."""
    tokenizer = ""
    if arguments.tokenizer:
        note, effect = command_output.print_note, "No row was made."
        tokenizer = str(find_model(arguments.tokenizer, "tokenizer", home, note, effect))
    return RowOptions(
        overlap=arguments.overlap,
        thoughts=arguments.thoughts or "as sampled",
        unjudged=arguments.unjudged,
        attempts=arguments.attempts,
        masking=not arguments.no_masking,
        roles=STEP_ROLES if arguments.no_summaries else ROW_ROLES,
        dialect=arguments.dialect,
        tokenizer=tokenizer,
        window=arguments.window,
    )


def _default_folder(home: Home, request: ExportRequest) -> Path:
    """A folder in the home that a repeated export finds again."""
    import hashlib

    name = hashlib.sha256(repr(request).encode()).hexdigest()[:10]
    return home.path / "exports" / f"{request.format}-{name}"


def _say_exported(result: ExportResult, as_json: bool, origin: str, place: str) -> None:
    """origin: where on the hub it was pushed; empty for nowhere. place: where it lies."""
    manifest = result.manifest
    if as_json:
        command_output.print_json_line(
            {**_exported_fields(result, place), "pushed": origin or None}
        )
        return
    counts = manifest.counts
    already = "" if result.written else " (the same export was there)"
    rows, rollouts = pluralize(manifest.rows, "row"), pluralize(len(manifest.sources), "rollout")
    command_output.print_line(f"{place}: {rows} of {rollouts}{already}.")
    for file in manifest.files:
        longest = f"{file.longest:,} {'tokens' if file.tokens is not None else 'messages'}"
        trained = f"{file.trained:,} {counts.unit} trained"
        rows = pluralize(file.rows, "row")
        command_output.print_line(f"  {file.name}  {rows}, {trained}, the longest has {longest}")
    if ids_source := ids_source_words(manifest):
        command_output.print_line(f"  {ids_source}")
    for reason, count in counts.untrained.items():
        command_output.print_line(f"  not trained: {count:,} {counts.unit}, {reason}")
    if counts.unjudged:
        command_output.print_line(
            f"  trained unjudged: {counts.unjudged:,} {counts.unit}, of steps that nobody judged"
        )
    for note in _export_notes(manifest):
        command_output.print_note(note)
    if origin:
        command_output.print_line(f"  pushed to {origin}: rows, card, manifest")
    command_output.print_note(
        f"{manifest.traps[0]} What else {manifest.format} does silently: see README.md there."
    )


def _export_notes(manifest: ExportManifest) -> Iterator[str]:
    """What a reader of the data should know: who judged it, what is missing, what is odd."""
    yield _run_sentence(manifest.run) or manifest.verdicts.sentence
    if manifest.left_out:
        yield f"{len(manifest.left_out)} left out; manifest.json names them, and why."
    if manifest.provenance == "none":
        yield "Some rollouts ran without a sandbox: their rows are marked, provenance none."
    if elsewhere := elsewhere_sentence(manifest):
        yield elsewhere
    if moved := [source.rollout for source in manifest.sources if source.moved]:
        yield f"{', '.join(moved)} continued meanwhile: newer steps may be missing."
    for remark, count in manifest.remarks.items():
        yield f"{pluralize(count, 'line')}: {remark}."


def _run_sentence(run: Mapping[str, Any]) -> str:
    """Which groups of a run are exported; empty for rows of no run."""
    if not run:
        return ""
    groups, updates = pluralize(run["groups"], "group"), pluralize(run["updates"], "update")
    dropped = "".join(f"; {count} {why}" for why, count in run["dropped"].items())
    return f"{groups} of {updates} of {run['run']}{dropped}."


def _exported_fields(result: ExportResult, place: str) -> dict[str, Any]:
    manifest = result.manifest
    return {
        "folder": place,
        "format": manifest.format,
        "rows": manifest.rows,
        "written": result.written,
        "content_hash": manifest.content_hash,
        "files": manifest.files,
        "counts": manifest.counts,
        "verdicts": manifest.verdicts,
        "ids_from": manifest.ids_from,
        "left_out": manifest.left_out,
        "held_out": manifest.split["held_out"],
        "provenance": manifest.provenance,
        "run": manifest.run,
    }
