"""`houston task list` and `houston rollout list|show|people|compare`.

They read the database only and work while the daemon is down. Commands that change a rollout are
in `commands.rollout_control_commands`.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec

from houston_console.commands import command_options, rollout_summary
from houston_console.commands.output_page import OutputPage, span
from houston_console.commands.rollout_summary import (
    drift_counts,
    format_local_time,
    format_score,
    state_span,
)
from houston_shared import command_output
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ExitCode
from houston_shared.hub_models import hub_origin
from houston_shared.node_places import NodePlace, read_node_places
from houston_shared.records import ENDED_STATES, RolloutState
from houston_shared.store import (
    annotation_queries,
    attention_ranking,
    json_views,
    presence_queries,
    process_reward_queries,
    purification_queries,
    refinement_queries,
    removed_data_queries,
    rollout_queries,
    step_json,
    step_queries,
    workspace_queries,
)
from houston_shared.store.attention_ranking import (
    RolloutNeed,
    RolloutOverview,
    compute_rollout_need,
    rank_rollouts,
)
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.presence_queries import AttentionCost, Person, current_person
from houston_shared.store.rollout_queries import RolloutCost, RolloutRow, ScorePoint, role_engines
from houston_shared.store.store_reader import Reader
from houston_shared.store.workspace_queries import EvaluationRow
from houston_shared.times_and_counts import (
    format_clock,
    format_cost,
    iso_time,
    local_time,
    now_us,
    pluralize,
)


def add_task_list_arguments(parser: argparse.ArgumentParser) -> None:
    """`--packaged`, `--json`."""
    parser.add_argument(
        "--packaged", action="store_true", help="tasks that `houston task new --from` copies"
    )
    command_options.add_json_option(parser, "one JSON line per task")


def run_task_list(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """List tasks by name."""
    if arguments.packaged:
        return _list_packaged_tasks(arguments.json)
    from houston_shared.task import compare_with_record  # slow: the other commands go without it

    with Reader(loaded.home) as reader:
        tasks = reader.run(rollout_queries.list_tasks())
        changes = [
            compare_with_record(reader.run(rollout_queries.read_task_record(task)))
            for task in tasks
        ]
    if arguments.json:
        for task, now in zip(tasks, changes, strict=True):
            command_output.print_json_line(json_views.task_json(task, *now))
        return int(ExitCode.DONE)
    rows = [
        (
            span(task.name, "name"),
            span(task.rollouts),
            span(task.running),
            span(format_score(task.best_score)),
            span(f"broken: {problem}", "bad") if problem else span("changed" if edited else ""),
        )
        for task, (edited, problem) in zip(tasks, changes, strict=True)
    ]
    if rows:
        OutputPage().table(("task", "rollouts#", "going on#", "best#", "file"), rows)
    else:
        command_output.print_note(
            "No task was started in this home.\n  next: houston rollout start TASK.toml"
        )
    return int(ExitCode.DONE)


def _list_packaged_tasks(json: bool) -> int:
    from houston_shared.task import load_packaged_tasks

    tasks = load_packaged_tasks()
    if json:
        for task in tasks:
            command_output.print_json_line(json_views.packaged_task_json(task))
        return int(ExitCode.DONE)
    rows = [
        (span(task.folder.name, "name"), span(task.task.domain), span(task.task.environment))
        for task in tasks
    ]
    OutputPage().table(("task", "domain", "environment"), rows)
    command_output.print_note("next: houston task new NAME --from TASK")
    return int(ExitCode.DONE)


def add_rollout_list_arguments(parser: argparse.ArgumentParser) -> None:
    """`--task`, `--state`, `--by-task`, `--json`."""
    parser.add_argument("--task", default="", metavar="TASK", help="only rollouts of this task")
    states = get_args(RolloutState)
    parser.add_argument("--state", default="", choices=states, help="only rollouts in this state")
    parser.add_argument(
        "--by-task",
        action="store_true",
        help="by task, the most urgent first; ended rollouts that need nobody share one line per"
        " task, or per suite; with --task or --state every rollout has its line",
    )
    command_options.add_json_option(parser, "one JSON line per rollout")


def run_rollout_list(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """List rollouts."""
    me = current_person(loaded.config.console.name)
    plan = attention_ranking.read_rollout_overviews(
        me, 0, arguments.task, arguments.state, bodies=arguments.json
    )
    with Reader(loaded.home) as reader:
        overviews = reader.run(plan)
        archives = reader.run(removed_data_queries.list_archive_files()) if overviews else {}
        costs = reader.run(rollout_queries.read_costs()) if arguments.json else {}
        stood = rollout_queries.last_known_at(reader)
    overviews = rollout_summary.apply_current_conditions(overviews, loaded.home)
    ranked = rank_rollouts(overviews, now_us())
    if arguments.by_task:
        ranked = _group_by_task(ranked)
    if arguments.json:
        for need in ranked:
            rollout = need.overview.rollout
            line = json_views.rollout_json(rollout) | json_views.need_json(need)
            line |= json_views.cost_json(costs.get(rollout.id), loaded.config.currency)
            line |= {"archive": archives[rollout.id]} if rollout.id in archives else {}
            command_output.print_json_line({**line, "as_of": stood and iso_time(stood)})
    elif ranked:
        page = OutputPage()
        if arguments.by_task:
            fold = not (arguments.task or arguments.state)
            rollout_summary.print_rollouts_by_task(page, ranked, archives, fold)
        else:
            rollout_summary.print_rollout_table(page, ranked, archives, by_task=False)
        if stood:
            command_output.print_note(rollout_queries.last_known_sentence(stood))
    elif arguments.task or arguments.state:
        command_output.print_note("There is no such rollout.\n  next: houston rollout list")
    else:
        command_output.print_note(
            "No rollout was started in this home.\n  next: houston rollout start TASK.toml"
        )
    return int(ExitCode.DONE)


def _task_name(need: RolloutNeed) -> str:
    return need.overview.rollout.task


def _group_by_task(needs: list[RolloutNeed]) -> list[RolloutNeed]:
    """Tasks in the order of their neediest rollout; within one as before."""
    first = {task: number for number, task in reversed(list(enumerate(map(_task_name, needs))))}
    return sorted(needs, key=lambda need: first[_task_name(need)])


def add_rollout_show_arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--json`."""
    command_options.add_rollout_argument(parser)
    command_options.add_json_option(parser, "one JSON object")


def run_rollout_show(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Show one rollout."""
    with Reader(loaded.home) as reader:
        overview, facts, scores = reader.run(
            _read_rollout(arguments.rollout, current_person(loaded.config.console.name))
        )
        stood = rollout_queries.last_known_at(reader)
    (overview,) = rollout_summary.apply_current_conditions([overview], loaded.home)
    need, rollout = compute_rollout_need(overview, now_us()), overview.rollout
    facts |= json_views.need_json(need)
    facts["node"] = read_node_places(loaded.home).last.get(rollout.id, NodePlace()).words
    if arguments.json:
        line = {**json_views.rollout_json(rollout), **facts, "scores": _score_rows(scores)}
        line |= json_views.cost_json(facts["cost"], loaded.config.currency)
        command_output.print_json_line({**line, "as_of": stood and iso_time(stood)})
        return int(ExitCode.DONE)
    facts["cost"] = _cost_text(facts, loaded.config.currency)
    _print_rollout(OutputPage(), rollout, facts, scores)
    if stood:
        command_output.print_note(rollout_queries.last_known_sentence(stood))
    return int(ExitCode.DONE)


def _read_rollout(
    name: str, person: Person
) -> ReadPlan[tuple[RolloutOverview, dict[str, Any], list[EvaluationRow]]]:
    rollout = yield from rollout_queries.find_rollout(name)
    (overview,) = yield from attention_ranking.read_rollout_overviews(person, rollout=rollout.id)
    drifts = yield from rollout_queries.count_drifts(rollout.id)
    purified = (yield from purification_queries.count_purification([rollout.id]))[rollout.id]
    messages = yield from annotation_queries.list_guidance(rollout.id)
    waiting = sum(message.state == "queued" for message in messages)
    delivered = sum(message.state == "delivered" for message in messages)
    workspace = yield from rollout_queries.read_workspace_folder(rollout)
    archive = yield from removed_data_queries.find_archive_file(rollout.id)
    freed = yield from removed_data_queries.find_last_cleaning(rollout.id)
    quarantined = yield from step_queries.list_quarantined_events(rollout.id)
    losses = step_queries.group_repair_losses(quarantined)
    facts = {
        **(yield from _spec_json(rollout)),
        "drift": drifts,
        "cost": (yield from rollout_queries.read_costs(rollout.id)).get(rollout.id),
        "usage": msgspec.to_builtins((yield from rollout_queries.read_token_usage(rollout.id))),
        "purification": purification_queries.purification_json(purified),
        "purified": purification_queries.purification_text(purified),
        "process_reward": process_reward_queries.process_reward_summary_json(
            process_reward_queries.summarize_process_rewards(
                (yield from process_reward_queries.list_step_rewards(rollout.id))
            )
        ),
        "verifier": step_json.count_verifications(
            (yield from step_queries.read_verified_steps(rollout.id))
        ),
        **refinement_queries.refinements_json(
            (yield from refinement_queries.read_refined(rollout)),
            (yield from refinement_queries.list_refinements(rollout.id)),
        ),
        "guidance": {"queued": waiting, "delivered": delivered},
        "workspace": workspace,
        "limited_by": _resource_limits(rollout.id, workspace),
        "archive": archive,
        "cleaned": _cleanup_json(freed),
        "set_aside": [
            {"repair": loss.repair, "events": loss.events, "steps": loss.steps} for loss in losses
        ],
    }
    return overview, facts, (yield from workspace_queries.list_evaluations(rollout.id))


def _spec_json(rollout: RolloutRow) -> ReadPlan[dict[str, Any]]:
    """What chose its world, its question and its samples, the commit of its engine's model where
    that is one of the hub, and where it was sampled, if not here; None where it was erased."""
    spec = yield from rollout_queries.read_spec_if_kept(rollout)
    if spec is None:
        return {"seed": None, "model": None, "elsewhere": None}
    if spec.elsewhere is not None:
        elsewhere = msgspec.to_builtins(spec.elsewhere)
        return {"seed": None, "model": None, "elsewhere": elsewhere}
    places = (str(spec.engine_settings.get(key) or "") for key in ("model", "tokenizer"))
    origin = next(filter(None, map(hub_origin, places)), None)
    return {"seed": spec.seed, "model": origin, "elsewhere": None}


def _elsewhere_text(elsewhere: dict[str, Any] | None) -> str:
    if elsewhere is None:
        return ""
    named = [elsewhere.get(key, "") for key in ("format", "agent", "file", "id")]
    left_out = ", ".join(elsewhere.get("left_out", ()))
    return ", ".join(filter(None, named)) + (f"; left out: {left_out}" if left_out else "")


def _resource_limits(rollout: str, workspace: str | None) -> str:
    """What limits its processes and memory, as its host has noted; empty when nothing runs."""
    if not workspace:
        return ""
    note = Path(workspace).parents[2] / "limits" / f"{rollout}.json"
    try:
        return str(msgspec.json.decode(note.read_bytes())["mechanism"])
    except (OSError, IndexError, KeyError, TypeError, msgspec.MsgspecError):
        return ""  # none, or one that a power cut left empty


def _cleanup_json(cleaning: removed_data_queries.HostCleaning | None) -> dict[str, Any] | None:
    if cleaning is None:
        return None
    body = cleaning.body
    return {
        "at": iso_time(cleaning.at),
        "by": body.by,
        "bytes": body.bytes,
        "snapshots": body.snapshots,
        "left": body.left,
        "said": removed_data_queries.describe_cleaning(cleaning),
    }


def _process_reward_text(reward: dict[str, Any] | None) -> str:
    """What a process reward model says of its decisions; empty where none scored any."""
    if reward is None:
        return ""
    return (
        f"mean {reward['mean']:.2f} of {pluralize(reward['steps'], 'decision')}, lowest"
        f" {reward['lowest']:.2f} at step {reward['lowest_step']}; by {reward['policy']}"
    )


def _cost_text(facts: dict[str, Any], currency: str) -> str:
    """What its samples and their reviews cost; empty where no engine has a price."""
    cost: RolloutCost = facts["cost"] or RolloutCost()
    about = "about " if facts["usage"]["reckoned"] else ""
    parts = [] if cost.samples is None else [f"{about}{format_cost(cost.samples)} {currency}"]
    if cost.review is not None:
        parts.append(f"judges and critics {format_cost(cost.review)} {currency}")
    return "; ".join(parts)


def _token_usage(usage: dict[str, int | float | None]) -> str:
    """What its samples cost, as far as engines said."""
    if usage["prompt_tokens"] is None and usage["completion_tokens"] is None:
        return ""
    counts = {name: "?" if count is None else f"{count:,}" for name, count in usage.items()}
    cached = f" ({counts['cached_tokens']} cached)" if usage["cached_tokens"] is not None else ""
    thought = (
        f" ({counts['reasoning_tokens']} of reasoning)"
        if usage["reasoning_tokens"] is not None
        else ""
    )
    return (
        f"{counts['prompt_tokens']} prompt{cached}, {counts['completion_tokens']} sampled{thought},"
        f" in {counts['samples']} samples"
    )


def _claim_text(claim: dict[str, Any] | None) -> str:
    if claim is None:
        return ""
    holder_text = f"held by {claim['holder']}" if claim["holder"] else "held by nobody"
    note = f"; note by {claim['note_by']}: {claim['note']}" if claim["note"] else ""
    return f"{holder_text} since {format_local_time(claim['since'])}{note}"


def _cleanup_text(freed: dict[str, Any] | None) -> str:
    return f"{freed['said']} ({format_local_time(freed['at'])}, {freed['by']})" if freed else ""


def _score_rows(evaluations: list[EvaluationRow]) -> list[dict[str, Any]]:
    """Evaluations in order; only those that gave a score used a submission, and have its number."""
    lines: list[dict[str, Any]] = []
    number = 0
    for evaluation in evaluations:
        number += evaluation.state == "scored"
        used = number if evaluation.state == "scored" else None
        fields = {"step": evaluation.step, "score": evaluation.score, "state": evaluation.state}
        lines.append({"number": used, **fields})
    return lines


def _print_rollout(
    page: OutputPage, row: RolloutRow, facts: dict[str, Any], scores: list[EvaluationRow]
) -> None:
    page.line(span(row.id, "name"), "  ", state_span(row, archived=bool(facts["archive"])))
    for name, value in _rollout_lines(row, facts, scores).items():
        if value:
            page.line("  ", span(name.ljust(10), "dim"), span(value))


def _rollout_lines(
    row: RolloutRow, facts: dict[str, Any], scores: list[EvaluationRow]
) -> dict[str, str]:
    """What is known of a rollout, by label; empty where there is nothing to say."""
    history = ", ".join(
        f"{format_score(score.score)} at step {score.step}"
        + ("" if score.state == "scored" else " (no score, no submission used)")
        for score in scores
    )
    roles = {role: (own["engine"], own["policy"]) for role, own in role_engines(row).items()}
    engines = {"engine": (row.engine, row.policy), **roles}
    return {
        "task": row.task,
        **{role: " ".join(filter(None, names)) for role, names in engines.items()},
        "model": facts["model"] or "",
        "sampled": _elsewhere_text(facts["elsewhere"]),
        "seed": "" if facts["seed"] is None else str(facts["seed"]),
        "started": local_time(row.created_at),
        "newest": f"{local_time(row.updated_at)}{f', now {row.activity}' if row.activity else ''}",
        "steps": f"{row.steps} ({drift_counts(facts['drift'])}); {row.errors} with errors;"
        f" {row.forks} forks",
        "tokens": _token_usage(facts["usage"]),
        "cost": facts["cost"],
        "active": format_clock(row.active_us / 1_000_000),
        "score": f"best {format_score(row.best_score)},"
        f" {'final' if row.state in ENDED_STATES else 'last'} {format_score(row.last_score)}",
        "scores": history,
        "reward": _process_reward_text(facts["process_reward"]),
        "purified": facts["purified"],
        "verifier": step_json.verifications_text(facts["verifier"]),
        "guidance": "{queued} queued, {delivered} delivered".format(**facts["guidance"]),
        "need": "; ".join(reason["text"] for reason in facts["reasons"]),
        "claim": _claim_text(facts["claim"]),
        "people": f"{', '.join(facts['looking'])} looking" if facts["looking"] else "",
        "node": facts["node"],
        "workspace": facts["workspace"] or "",
        "cleaned": _cleanup_text(facts["cleaned"]),
        "limits": f"by {facts['limited_by']}" if facts["limited_by"] else "",
        "archive": facts["archive"],
        "repair": "; ".join(
            step_queries.describe_repair_loss(step_queries.LossFromRepair(**loss))
            for loss in facts["set_aside"]
        ),
        "branch": f"of {row.parent} at step {row.parent_step}" if row.parent else "",
        "refines": _refines_text(facts["refines"]),
        "refined": ", ".join(map(_refined_by_text, facts["refined_by"])),
    }


def _refines_text(refines: dict[str, str] | None) -> str:
    if refines is None:
        return ""
    return f"{refines['rollout']}, told by {refines['critic']}: {refines['text'] or '(erased)'}"


def _refined_by_text(row: dict[str, Any]) -> str:
    score = "" if row["score"] is None else f", score {format_score(row['score'])}"
    return f"by {row['rollout']} ({row['state']}{score})"


def add_rollout_people_arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--task`, `--with-past`, `--json`."""
    command_options.add_rollout_argument(parser, optional=True)
    parser.add_argument("--task", default="", metavar="TASK", help="only rollouts of this task")
    parser.add_argument(
        "--with-past",
        action="store_true",
        help="for branches, also the cost of the shared steps",
    )
    command_options.add_json_option(parser, "one JSON line per rollout and person")


def run_rollout_people(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """List what attention one rollout, or all, had."""
    with Reader(loaded.home) as reader:
        costs = reader.run(_read_attention_cost(arguments))
    lines = [(rollout, cost) for rollout, shares in costs.items() for cost in shares]
    if arguments.json:
        for rollout, cost in lines:
            command_output.print_json_line(json_views.attention_cost_json(rollout, cost))
    elif lines:
        _print_attention_table(lines)
    else:
        command_output.print_note("Nobody has looked at it or spoken to it with a console yet.")
    return int(ExitCode.DONE)


def _read_attention_cost(arguments: argparse.Namespace) -> ReadPlan[dict[str, list[AttentionCost]]]:
    if arguments.rollout:
        ids = [(yield from rollout_queries.resolve_rollout_id(arguments.rollout))]
    else:
        ids = [rollout.id for rollout in (yield from rollout_queries.list_rollouts(arguments.task))]
    if not arguments.with_past:
        return (yield from presence_queries.read_attention_costs(ids))
    costs: dict[str, list[AttentionCost]] = {}
    for id in ids:
        costs[id] = yield from presence_queries.read_attention_cost_with_past(id)
    return costs


def _print_attention_table(lines: list[tuple[str, AttentionCost]]) -> None:
    titles = ("rollout", "person", "active#", "looked#", "visits#", "messages#", "words#")
    rows = [
        (
            span(rollout, "name"),
            span(cost.name if cost.verified else f"{cost.name} (unverified)", "person"),
            span(format_clock(cost.active_us / 1e6)),
            span(format_clock(cost.looked_us / 1e6)),
            span(cost.visits),
            span(cost.messages),
            span(cost.words),
        )
        for rollout, cost in lines
    ]
    OutputPage().table(titles, rows)


ALL_SCORES = 1_000_000
"""Scores of a rollout: every one."""


class ComparisonSide(NamedTuple):
    """One of two compared rollouts."""

    rollout: RolloutRow
    scores: list[ScorePoint]
    people: list[AttentionCost]

    @property
    def minutes(self) -> float:
        """Of people with a key pressed in the last minute."""
        return sum(cost.active_us for cost in self.people) / 60e6

    @property
    def words(self) -> int:
        """Words that people said to it."""
        return sum(cost.words for cost in self.people)


def add_rollout_compare_arguments(parser: argparse.ArgumentParser) -> None:
    """Two `R`, `--json`."""
    for name in ("a", "b"):
        parser.add_argument(
            name, metavar="R", help="rollout: its id, or a unique beginning or ending"
        )
    command_options.add_json_option(parser, "one JSON object with both")


def run_rollout_compare(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Show two rollouts side by side."""
    with Reader(loaded.home) as reader:
        sides = reader.run(read_comparison((arguments.a, arguments.b), ALL_SCORES))
    if arguments.json:
        command_output.print_json_line({"rollouts": [_comparison_json(side) for side in sides]})
    else:
        _print_comparison(OutputPage(), sides)
    return int(ExitCode.DONE)


def read_comparison(names: tuple[str, str], max_scores: int) -> ReadPlan[list[ComparisonSide]]:
    """Both, each with its newest scores. Raises HoustonError where one is not there."""
    rollouts = []
    for name in names:
        rollouts.append((yield from rollout_queries.find_rollout(name)))
    ids = [rollout.id for rollout in rollouts]
    scored = yield from rollout_queries.score_history(ids, max_scores)
    spent = yield from presence_queries.read_attention_costs(ids)
    return [ComparisonSide(rollout, scored[rollout.id], spent[rollout.id]) for rollout in rollouts]


def _comparison_json(side: ComparisonSide) -> dict[str, Any]:
    return {
        **json_views.rollout_json(side.rollout),
        "scores": [
            {"step": score.step, "active_seconds": score.active_us / 1e6, "score": score.score}
            for score in side.scores
        ],
        "minutes": side.minutes,
        "words": side.words,
        "people": [json_views.attention_cost_json(side.rollout.id, cost) for cost in side.people],
    }


def _print_comparison(page: OutputPage, sides: list[ComparisonSide]) -> None:
    rows: list[tuple[str, Sequence[object]]] = [
        ("task", [side.rollout.task for side in sides]),
        ("state", [state_span(side.rollout, 40).text for side in sides]),
        ("engine", [f"{side.rollout.engine} {side.rollout.policy}".strip() for side in sides]),
        ("steps", [side.rollout.steps for side in sides]),
        ("with errors", [side.rollout.errors for side in sides]),
        ("active", [format_clock(side.rollout.active_us / 1e6) for side in sides]),
        ("evaluations", [side.rollout.evaluations for side in sides]),
        ("best score", [format_score(side.rollout.best_score) for side in sides]),
        ("last score", [format_score(side.rollout.last_score) for side in sides]),
        ("minutes of people", [f"{side.minutes:.1f}" for side in sides]),
        ("words of people", [side.words for side in sides]),
        *_score_rows_over_time(sides),
    ]
    titles = ("", *(side.rollout.id for side in sides))
    table = [(span(name, "dim"), *(span(value) for value in values)) for name, values in rows]
    page.table(titles, table)


def _score_rows_over_time(sides: list[ComparisonSide]) -> list[tuple[str, Sequence[object]]]:
    """A line for each time at which one of them was scored: the score that each had by then."""
    seconds = sorted({score.active_us // 1_000_000 for side in sides for score in side.scores})
    return [
        (
            f"score at {format_clock(second)}",
            [_score_by_second(side.scores, second) for side in sides],
        )
        for second in seconds
    ]


def _score_by_second(scores: list[ScorePoint], second: int) -> str:
    """The newest score in a second of active time; in brackets where it is older."""
    earlier = [score for score in scores if score.active_us // 1_000_000 <= second]
    if not earlier:
        return "–"
    text = format_score(earlier[-1].score)
    return text if earlier[-1].active_us // 1_000_000 == second else f"({text})"
