"""`houston policy show policy@2`: where a policy comes from, and what became of it."""

import argparse
from typing import Any

from houston_console.headless import options, policy_list
from houston_console.headless.page import Page, span
from houston_shared import out
from houston_shared.clock import local
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.policy_names import policies_folder
from houston_shared.store import policy_views
from houston_shared.store.bodies_training import PolicyRegistered
from houston_shared.store.queries import policies
from houston_shared.store.queries.policies import Activation, Policy
from houston_shared.store.reader import Reader


def arguments(parser: argparse.ArgumentParser) -> None:
    """`POLICY`, `--json`."""
    parser.add_argument("policy", metavar="POLICY", help="its name: policy@2")
    options.as_json(parser, "one JSON object")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Show it."""
    with Reader(loaded.home) as reader:
        policy = meant(reader, arguments.policy)
        said = reader.run(policies.registered(policy))
        own = "" if policy.kind == "base" else policy.name
        history = [one for one in reader.run(policies.activations()) if one.policy == own]
        _, active, used, tokens = reader.run(policy_list.known())
    if arguments.json:
        whole = policy_views.policy(policy, active, used, tokens.get(own, 0))
        history_json = [policy_views.activation(one) for one in history]
        out.json_line({**whole, **policy_views.registered(said), "activations": history_json})
        return int(ExitCode.DONE)
    page = Page()
    page.line(span(policy.name, "name"), f"  {policy.kind}, since {local(policy.created_at)}")
    for title, text in _facts(loaded, policy, said):
        page.line(span(f"  {title:<9} ", "dim"), span(text))
    page.line(
        span("  sampled   ", "dim"),
        f"{tokens.get(own, 0):,} tokens; {used.get(own, 0)} rollouts go on",
    )
    for one in history:
        page.line(span("  engine    ", "dim"), span(_told(one)))
    return int(ExitCode.DONE)


def meant(reader: Reader, name: str) -> Policy:
    """The policy of that name. Raises HoustonError naming those there are."""
    found = reader.run(policies.one(name))
    if found is None:
        known = ", ".join(one.name for one in reader.run(policies.every())) or "none"
        raise HoustonError(
            f"There is no policy {name!r}; there are: {known}.", next="houston policy list"
        )
    return found


def _facts(loaded: Loaded, policy: Policy, said: PolicyRegistered | None) -> list[tuple[str, str]]:
    folder = policies_folder(loaded.home) / policy.folder if policy.folder else policy.base
    facts = [("files", f"{folder} ({policy.hash[:12]})")]
    facts += [("parent", policy.parent)] if policy.parent else []
    facts += [("base", f"{policy.base} ({policy.base_hash[:12]})")] if policy.folder else []
    facts += [("run", policy.run)] if policy.run else []
    facts += [("data", f"manifest {policy.manifest[:12]}")] if policy.manifest else []
    if said is None:
        return [*facts, ("recipe", "erased")]
    facts += [("fits", "engines of kind " + ", ".join(said.engines))]
    facts += [("metrics", pairs(said.metrics))] if said.metrics else []
    facts += [("recipe", pairs(said.recipe))] if said.recipe else []
    return [*facts, *([("note", said.note)] if said.note else [])]


def pairs(values: dict[str, Any]) -> str:
    """Figures or settings in one line, as a recipe's file has them; without those left empty."""
    said = {key: value for key, value in values.items() if value not in (None, "")}
    return ", ".join(f"{key} {_short(value)}" for key, value in said.items())


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return f"({pairs(value)})"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _told(one: Activation) -> str:
    how = "taken back to" if one.rollback else "given"
    reason = f": {one.reason}" if one.reason else ""
    by = one.by.removeprefix("person:")
    return f"{one.engine} was {how} it, {one.state}{reason} ({by}, {local(one.at)})"
