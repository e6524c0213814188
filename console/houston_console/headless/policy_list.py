"""`houston policy list`: policies, what they come from, and which engines sample with them."""

import argparse

from houston_console.headless import options
from houston_console.headless.page import Page, Span, span
from houston_shared import out
from houston_shared.clock import local
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode
from houston_shared.store import policy_views
from houston_shared.store.plan import Plan
from houston_shared.store.queries import policies
from houston_shared.store.queries.policies import Policy
from houston_shared.store.reader import Reader

HASH = 12
"""Characters of a hash that people are shown."""
Known = tuple[list[Policy], dict[str, str], dict[str, int], dict[str, int]]


def arguments(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    options.as_json(parser, "one JSON line a policy")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """List them."""
    with Reader(loaded.home) as reader:
        found, active, used, tokens = reader.run(known())
    if arguments.json:
        for one in found:
            sampled = tokens.get("" if one.kind == "base" else one.name, 0)
            out.json_line(policy_views.policy(one, active, used, sampled))
    elif found:
        page = Page()
        titles = ("policy", "kind", "parent", "active on", "going on#", "tokens#", "data", "since")
        page.table(titles, [_row(one, active, used, tokens) for one in found])
        if not active:
            out.note("None was activated: new rollouts sample with their engine's own model.")
    else:
        out.note("Nothing was trained in this home.\n  next: houston train sft --help")
    return int(ExitCode.DONE)


def known() -> Plan[Known]:
    """All policies; engine → active policy; policy → unfinished rollouts; policy → tokens."""
    found = yield from policies.every()
    active = yield from policies.shown_actives()
    used: dict[str, int] = {}
    for one in (yield from policies.uses()):
        used[one.policy] = used.get(one.policy, 0) + len(one.rollouts)
    return found, active, used, (yield from policies.sampled())


def _row(
    one: Policy, active: dict[str, str], used: dict[str, int], tokens: dict[str, int]
) -> tuple[Span, ...]:
    engines = ", ".join(engine for engine, name in active.items() if name == one.name)
    key = "" if one.kind == "base" else one.name
    return (
        span(one.name, "name"),
        span(one.kind),
        span(one.parent or "–"),
        span(engines or "–", "good" if engines else ""),
        span(used.get(key, 0)),
        span(f"{tokens.get(key, 0):,}"),
        span(one.manifest[:HASH] or "–"),
        span(local(one.created_at), "dim"),
    )
