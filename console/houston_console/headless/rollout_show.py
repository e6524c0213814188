"""`houston rollout show R`: how one rollout stands."""

import argparse
from pathlib import Path
from typing import Any

import msgspec

from houston_console.headless import options, standing_now
from houston_console.headless.page import Page, span
from houston_console.headless.spoken import duration, local_of, score, standing
from houston_shared import out
from houston_shared.clock import iso, local, now_us
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.need import Standing, weigh
from houston_shared.person import Person, myself
from houston_shared.records import ENDED
from houston_shared.store import last_known, views
from houston_shared.store.plan import Plan
from houston_shared.store.queries import (
    archived,
    aside,
    cleaned,
    guidance,
    home,
    progress,
    rollouts,
    world,
)
from houston_shared.store.queries.rollouts import Rollout
from houston_shared.store.queries.world import Evaluation
from houston_shared.store.reader import Reader


def arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--json`."""
    options.rollout(parser)
    options.as_json(parser, "one JSON object")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Show it."""
    with Reader(loaded.home) as reader:
        stands, facts, scores = reader.run(_read(arguments.rollout, _me(loaded)))
        stood = last_known.as_of(reader)
    (stands,) = standing_now.as_it_is([stands], loaded.home)
    need, one = weigh(stands, now_us()), stands.rollout
    facts |= views.need(need)
    if arguments.json:
        line = {**views.rollout(one), **facts, "scores": _scores(scores)}
        out.json_line({**line, "as_of": stood and iso(stood)})
        return int(ExitCode.DONE)
    _show(Page(), one, facts, scores)
    if stood:
        out.note(last_known.sentence(stood))
    return int(ExitCode.DONE)


def _me(loaded: Loaded) -> Person:
    return myself(loaded.config.console.name)


def _read(name: str, person: Person) -> Plan[tuple[Standing, dict[str, Any], list[Evaluation]]]:
    one = yield from rollouts.rollout(name)
    (stands,) = yield from home.standings(person, rollout=one.id)
    drifts = yield from progress.drifts(one.id)
    said = yield from guidance.of_rollout(one.id)
    waiting = sum(each.state == "queued" for each in said)
    delivered = sum(each.state == "delivered" for each in said)
    workspace = yield from rollouts.workspace(one)
    archive = yield from archived.place(one.id)
    freed = yield from cleaned.of(one.id)
    losses = aside.losses((yield from aside.holes(one.id)))
    facts = {
        "seed": (yield from _seed(one)),
        "drift": drifts,
        "usage": msgspec.to_builtins((yield from progress.usage(one.id))),
        "guidance": {"queued": waiting, "delivered": delivered},
        "workspace": workspace,
        "limited_by": _limited_by(one.id, workspace),
        "archive": archive,
        "cleaned": _freed(freed),
        "set_aside": [
            {"repair": loss.repair, "events": loss.events, "steps": loss.steps} for loss in losses
        ],
    }
    return stands, facts, (yield from world.evaluations(one.id))


def _seed(one: Rollout) -> Plan[int | None]:
    """What chose its world, its question and its samples; None where that was erased."""
    try:
        return (yield from rollouts.spec(one)).seed
    except HoustonError:
        return None


def _limited_by(rollout: str, workspace: str | None) -> str:
    """What limits its processes and memory, as its host has noted; empty when nothing runs."""
    if not workspace:
        return ""
    note = Path(workspace).parents[2] / "limits" / f"{rollout}.json"
    try:
        return str(msgspec.json.decode(note.read_bytes())["mechanism"])
    except (OSError, IndexError):
        return ""


def _freed(one: cleaned.Cleaning | None) -> dict[str, Any] | None:
    if one is None:
        return None
    fields = {"bytes": one.body.bytes, "snapshots": one.body.snapshots, "left": one.body.left}
    return {"at": iso(one.at), "by": one.body.by, **fields, "said": cleaned.said(one)}


def _tokens(usage: dict[str, int | None]) -> str:
    """What its samples cost, as far as engines said."""
    if usage["prompt_tokens"] is None and usage["completion_tokens"] is None:
        return ""
    told = {name: "?" if count is None else f"{count:,}" for name, count in usage.items()}
    cached = f" ({told['cached_tokens']} cached)" if usage["cached_tokens"] is not None else ""
    thought = (
        f" ({told['reasoning_tokens']} of reasoning)"
        if usage["reasoning_tokens"] is not None
        else ""
    )
    return (
        f"{told['prompt_tokens']} prompt{cached}, {told['completion_tokens']} sampled{thought},"
        f" in {told['samples']} samples"
    )


def _claim(held: dict[str, Any] | None) -> str:
    if held is None:
        return ""
    who = f"held by {held['holder']}" if held["holder"] else "held by nobody"
    note = f"; note by {held['note_by']}: {held['note']}" if held["note"] else ""
    return f"{who} since {local_of(held['since'])}{note}"


def _cleaned(freed: dict[str, Any] | None) -> str:
    return f"{freed['said']} ({local_of(freed['at'])}, {freed['by']})" if freed else ""


def _losses(facts: dict[str, Any]) -> list[aside.Loss]:
    return [aside.Loss(**one) for one in facts["set_aside"]]


def _scores(evaluations: list[Evaluation]) -> list[dict[str, Any]]:
    """Evaluations in order; only those that gave a score used a submission, and have its number."""
    lines: list[dict[str, Any]] = []
    number = 0
    for each in evaluations:
        number += each.state == "scored"
        used = number if each.state == "scored" else None
        lines.append({"number": used, "step": each.step, "score": each.score, "state": each.state})
    return lines


def _show(page: Page, one: Rollout, facts: dict[str, Any], scores: list[Evaluation]) -> None:
    drift = ", ".join(f"{count} {name}" for name, count in sorted(facts["drift"].items()))
    said = facts["guidance"]
    history = ", ".join(
        f"{score(each.score)} at step {each.step}"
        + ("" if each.state == "scored" else " (no score, no submission used)")
        for each in scores
    )
    page.line(span(one.id, "name"), "  ", standing(one, archived=bool(facts["archive"])))
    lines = {
        "task": one.task,
        "engine": " ".join(filter(None, (one.engine, one.policy))),
        "seed": "" if facts["seed"] is None else str(facts["seed"]),
        "started": local(one.created_at),
        "newest": f"{local(one.updated_at)}{f', now {one.activity}' if one.activity else ''}",
        "steps": f"{one.steps} ({drift or 'none'}); {one.errors} with errors; {one.forks} forks",
        "tokens": _tokens(facts["usage"]),
        "active": duration(one.active_us / 1_000_000),
        "score": f"best {score(one.best_score)},"
        f" {'final' if one.state in ENDED else 'last'} {score(one.last_score)}",
        "scores": history,
        "guidance": f"{said['queued']} queued, {said['delivered']} delivered",
        "need": "; ".join(one["text"] for one in facts["reasons"]),
        "claim": _claim(facts["claim"]),
        "people": f"{', '.join(facts['looking'])} looking" if facts["looking"] else "",
        "workspace": facts["workspace"] or "",
        "cleaned": _cleaned(facts["cleaned"]),
        "limits": f"by {facts['limited_by']}" if facts["limited_by"] else "",
        "archive": facts["archive"],
        "repair": "; ".join(aside.loss_said(loss) for loss in _losses(facts)),
        "branch": f"of {one.parent} at step {one.parent_step}" if one.parent else "",
    }
    for name, value in lines.items():
        if value:
            page.line("  ", span(name.ljust(10), "dim"), span(value))
