"""`houston policy list|show|activate|rollback`.

Lists policies with their origin and use, and asks the daemon to have new rollouts of an engine
sample with one. Running rollouts keep the policy they have. Merging and exporting are commands of
the daemon.
"""

import argparse
import shutil
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from houston_console.commands import command_options, daemon_requests, policy_report
from houston_console.commands.daemon_requests import JournalFollower
from houston_console.commands.output_page import OutputPage, OutputSpan, span
from houston_console.commands.policy_report import (
    ReportLine,
    curve_title,
    find_ancestors,
    obedience_cell,
    obedience_json,
    outcome_cell,
    sampled_name,
)
from houston_shared import command_output
from houston_shared.command_arguments import seconds_argument
from houston_shared.config import LoadedConfiguration
from houston_shared.control_messages import ActivatePolicy
from houston_shared.errors import Busy, ExitCode, HoustonError, NotFound
from houston_shared.kept_suite_runs import KeptRun, list_kept_runs, suite_outcomes
from houston_shared.policy_and_run_files import BASE_MODEL, policies_folder
from houston_shared.safe_text import safe
from houston_shared.store import policy_outcome_queries, policy_queries
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.policy_outcome_queries import Obedience
from houston_shared.store.policy_queries import ActivationRow, PolicyRow
from houston_shared.store.store_reader import Reader
from houston_shared.store.training_event_bodies import PolicyRegistered
from houston_shared.times_and_counts import local_time, pluralize
from houston_shared.training_figures import Curve

PolicyUse = tuple[list[PolicyRow], dict[str, str], dict[str, int], dict[str, int]]


def add_policy_list_arguments(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    command_options.add_json_option(parser, "one JSON line per policy")


def run_policy_list(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """List policies."""
    with Reader(loaded.home) as reader:
        policies, active, used, tokens = reader.run(read_policy_use())
        obedience = reader.run(policy_outcome_queries.count_followed_guidance())
    if arguments.json:
        for policy in policies:
            sampled = tokens.get(sampled_name(policy), 0)
            line = policy_queries.policy_json(policy, active, used, sampled)
            own = obedience.get(sampled_name(policy), Obedience())
            command_output.print_json_line({**line, "obedience": obedience_json(own)})
    elif policies:
        page = OutputPage()
        kept_runs = list_kept_runs(loaded.home)
        rows = [
            (
                *_policy_row(policy, active, used, tokens),
                *_outcome_cells(policy, policies, kept_runs, obedience),
                span(local_time(policy.created_at), "dim"),
            )
            for policy in policies
        ]
        titles = ("policy", "kind", "parent", "active on", "going on#", "tokens#")
        page.table((*titles, "solved", "obeys", "since"), rows)
        if not active:
            command_output.print_note(
                "No policy is active: new rollouts sample with their engine's own model."
            )
    else:
        command_output.print_note(
            "Nothing was trained in this home.\n  next: houston train sft --help"
        )
    return int(ExitCode.DONE)


def read_policy_use() -> ReadPlan[PolicyUse]:
    """All policies; engine → active policy; policy → unfinished rollouts; policy → tokens."""
    policies = yield from policy_queries.list_policies()
    active = yield from policy_queries.list_displayed_policies()
    used: dict[str, int] = {}
    for use in (yield from policy_queries.list_policy_uses()):
        used[use.policy] = used.get(use.policy, 0) + len(use.rollouts)
    return policies, active, used, (yield from policy_queries.count_sampled_tokens())


def _policy_row(
    policy: PolicyRow, active: dict[str, str], used: dict[str, int], tokens: dict[str, int]
) -> tuple[OutputSpan, ...]:
    engines = ", ".join(engine for engine, name in active.items() if name == policy.name)
    key = sampled_name(policy)
    return (
        span(policy.name, "name"),
        span(policy.kind),
        span(policy.parent or "–"),
        span(engines or "–", "good" if engines else ""),
        span(used.get(key, 0)),
        span(f"{tokens.get(key, 0):,}"),
    )


def _outcome_cells(
    policy: PolicyRow,
    policies: list[PolicyRow],
    kept: list[KeptRun],
    obedience: dict[str, Obedience],
) -> tuple[OutputSpan, ...]:
    """How it did: the suite that was run last, and guidance that was followed."""
    if policy.kind == "reward":
        return span("scores decisions", "dim"), span("–", "dim")
    own = sampled_name(policy)
    outcomes = suite_outcomes(kept, own, find_ancestors(policy, policies))
    solved = outcome_cell(outcomes[-1] if outcomes else None)
    own_obedience = obedience.get(own, Obedience())
    return (
        span(solved, "" if outcomes else "dim"),
        span(obedience_cell(own_obedience), "" if own_obedience.heard else "dim"),
    )


def add_policy_show_arguments(parser: argparse.ArgumentParser) -> None:
    """`POLICY`, `--json`."""
    parser.add_argument("policy", metavar="POLICY", help="its name: policy@2")
    command_options.add_json_option(parser, "one JSON object")


def run_policy_show(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Show one policy."""
    with Reader(loaded.home) as reader:
        policy = resolve_policy(reader, arguments.policy)
        registration = reader.run(policy_queries.read_policy_registration(policy))
        own, activations = sampled_name(policy), reader.run(policy_queries.list_activations())
        history = [activation for activation in activations if activation.policy == own]
        policies, active, used, tokens = reader.run(read_policy_use())
        records = reader.run(policy_report.read_policy_records(policy, policies))
        made_by = policy_report.run_of_policy(records)
        run = reader.run(policy_queries.find_training_run(made_by)) if made_by else None
    evidence = policy_report.gather_evidence(loaded.home, records, list_kept_runs(loaded.home))
    if arguments.json:
        policy_json = policy_queries.policy_json(policy, active, used, tokens.get(own, 0))
        history_json = [policy_queries.activation_json(activation) for activation in history]
        command_output.print_json_line(
            {
                **policy_json,
                **policy_queries.registration_json(registration),
                **policy_report.evidence_json(evidence),
                "activations": history_json,
            }
        )
        return int(ExitCode.DONE)
    page = OutputPage()
    page.line(span(policy.name, "name"), f"  {policy.kind}, since {local_time(policy.created_at)}")
    for title, text in _policy_facts(loaded, policy, registration):
        page.line(span(f"  {title:<9} ", "dim"), span(text))
    if policy.kind != "reward":
        page.line(
            span("  sampled   ", "dim"),
            f"{tokens.get(own, 0):,} tokens; {used.get(own, 0)} rollouts go on",
        )
    for text in _activation_texts(own, activations):
        page.line(span("  engine    ", "dim"), span(text))
    lines = [*policy_report.policy_report(evidence)]
    if policy.kind != "base" and (missing := policy_report.no_curve_line(run, evidence.figures)):
        lines.append(missing)
    print_report(page, lines, evidence.figures.curves)
    return int(ExitCode.DONE)


REPORT_TONES = {"text": "", "good": "good", "bad": "bad", "dim": "dim"}
CHART_COLUMNS = 100
"""Columns of charts where no terminal says how wide it is."""


def print_report(page: OutputPage, lines: Sequence[ReportLine], curves: Sequence[Curve]) -> None:
    """Facts under their names, then curves where what is written to can show them."""
    for fact in lines:
        page.line(span(f"  {fact.name:<9} ", "dim"), span(fact.text, REPORT_TONES[fact.tone]))
    if not curves:
        return
    if not command_output.stdout_takes_unicode():
        for curve in curves:
            page.line(span("  curve     ", "dim"), span(curve_title(curve)))
        return
    from houston_console.widgets.curve_chart import chart_grid

    width = shutil.get_terminal_size((CHART_COLUMNS, 0)).columns if sys.stdout.isatty() else 0
    for row in chart_grid(curves, (width or CHART_COLUMNS) - 2):
        page.line("  ", OutputSpan(safe(row.text), "" if row.is_title else "call"))


def resolve_policy(reader: Reader, name: str) -> PolicyRow:
    """The policy of that name. Raises HoustonError naming those there are."""
    policy = reader.run(policy_queries.find_policy(name))
    if policy is None:
        names = ", ".join(row.name for row in reader.run(policy_queries.list_policies())) or "none"
        raise NotFound(
            f"There is no policy {name!r}; there are: {names}.", next="houston policy list"
        )
    return policy


def _policy_facts(
    loaded: LoadedConfiguration, policy: PolicyRow, registration: PolicyRegistered | None
) -> list[tuple[str, str]]:
    folder = policies_folder(loaded.home) / policy.folder if policy.folder else policy.base
    facts = [("files", f"{folder} ({policy.hash[:12]})")]
    facts += [("parent", policy.parent)] if policy.parent else []
    facts += [("base", f"{policy.base} ({policy.base_hash[:12]})")] if policy.folder else []
    facts += [("run", policy.run)] if policy.run else []
    facts += [("data", f"manifest {policy.manifest[:12]}")] if policy.manifest else []
    if registration is None:
        return [*facts, ("recipe", "erased")]
    fits = "engines of kind " + ", ".join(registration.engines)
    reward = policy.kind == "reward"
    facts += [("hub base", registration.base_origin)] if registration.base_origin else []
    facts += [("hub", f"pulled from {registration.origin}")] if registration.origin else []
    facts += [("fits", "no engine: it scores decisions and samples nothing" if reward else fits)]
    facts += [("metrics", format_settings(registration.metrics))] if registration.metrics else []
    facts += [("recipe", format_settings(registration.recipe))] if registration.recipe else []
    return [*facts, *([("note", registration.note)] if registration.note else [])]


def format_settings(values: dict[str, Any]) -> str:
    """Figures or settings in one line, as a recipe's file has them; without those left empty."""
    filled = {key: value for key, value in values.items() if value not in (None, "")}
    return ", ".join(f"{key} {_format_setting(value)}" for key, value in filled.items())


def _format_setting(value: Any) -> str:
    if isinstance(value, dict):
        return f"({format_settings(value)})"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):  # of tables only how many
        has_tables = any(isinstance(each, dict) for each in value)
        items = [pluralize(len(value), "table")] if has_tables else value
        return f"[{', '.join(map(str, items))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _activation_texts(policy: str, activations: Sequence[ActivationRow]) -> Iterator[str]:
    """A line for each activation of a policy. activations: of all policies, oldest first."""
    newest = {each.engine: each.seq for each in activations if each.state == "active"}
    for activation in activations:
        if activation.policy != policy:
            continue
        is_past = activation.state == "active" and activation.seq < newest[activation.engine]
        state = "replaced since" if is_past else activation.state
        verb = "taken back to" if activation.rollback else "given"
        reason = f": {activation.reason}" if activation.reason else ""
        by, when = activation.by.removeprefix("person:"), local_time(activation.at)
        yield f"{activation.engine} was {verb} it, {state}{reason} ({by}, {when})"


ACTIVATION_WAIT_SECONDS = 900.0
"""A large model may take minutes to start."""


def add_policy_activate_arguments(parser: argparse.ArgumentParser) -> None:
    """`POLICY`, and the options of `rollback`."""
    parser.add_argument(
        "policy", metavar="POLICY", help=f"policy@2; `{BASE_MODEL}` for the engine's own model"
    )
    add_activation_options(parser)


def add_activation_options(parser: argparse.ArgumentParser) -> None:
    """`--engine`, `--wait`, `--as`, `--json`."""
    parser.add_argument(
        "--engine", default="", metavar="ENGINE", help="engine; default: `default_engine`"
    )
    parser.add_argument(
        "--wait",
        type=seconds_argument,
        default=ACTIVATION_WAIT_SECONDS,
        metavar="SECONDS",
        help=f"wait at most this long ({ACTIVATION_WAIT_SECONDS:g});"
        " the activation continues afterwards",
    )
    command_options.add_speaker_option(parser)
    command_options.add_json_option(parser, "one JSON object: the activation")


def run_policy_activate(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Ask for the activation, and print what came of it."""
    policy = "" if arguments.policy == BASE_MODEL else arguments.policy
    return request_activation(arguments, loaded, policy, rollback=False)


def request_activation(
    arguments: argparse.Namespace, loaded: LoadedConfiguration, policy: str, rollback: bool
) -> int:
    """One activation, from asking to its end."""
    engine = arguments.engine or loaded.config.default_engine
    loaded.engine(engine)  # unknown ones are said at once
    message = ActivatePolicy(
        request=uuid.uuid4().hex,
        engine=engine,
        policy=policy,
        rollback=rollback,
        claimed=daemon_requests.claimed_name(arguments, loaded),
    )
    seq = daemon_requests.send_request(
        loaded, message, "It may have been done.", "houston policy list"
    ).seq
    ended = _wait_for_activation(loaded, seq, arguments.wait)
    if arguments.json:
        command_output.print_json_line(policy_queries.activation_json(ended))
    if ended.state == "failed":
        effect = f"New rollouts of {engine} sample with what they did."
        raise HoustonError(ended.reason, effect, "houston policy list")
    if not arguments.json:
        policy_name = ended.policy or "its own model"
        command_output.print_line(
            f"New rollouts of {engine} sample with {policy_name}; running ones keep theirs."
        )
    return int(ExitCode.DONE)


def _wait_for_activation(loaded: LoadedConfiguration, seq: int, patience: float) -> ActivationRow:
    end = time.monotonic() + patience
    with Reader(loaded.home) as reader, JournalFollower(loaded.home, reader) as following:
        while True:
            now = following.read(lambda: policy_queries.find_activation(seq))
            if now is not None and now.state != "asked":
                return now
            if not following.wait(max(0.0, end - time.monotonic())):
                raise Busy(
                    f"The engine has not answered with it for {patience:g} s.",
                    "It goes on being tried; new rollouts sample with what they did until then.",
                    "houston daemon status",
                )


add_policy_rollback_arguments = add_activation_options


def run_policy_rollback(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Take the newest activation back; once more takes back the one before."""
    return request_activation(arguments, loaded, "", rollback=True)
