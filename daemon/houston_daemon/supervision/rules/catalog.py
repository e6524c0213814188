"""The set of rules: their names, in the order in which a step lists them, and their versions.

Packages bring further ones by entry point (docs/extending.md); a task names those that it wants.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from houston_daemon.supervision.rules import (
    best,
    compute,
    edits,
    evaluations,
    guidance,
    scripts,
    wrong,
)
from houston_daemon.supervision.rules.finding import Finding, Rule
from houston_daemon.supervision.trace import Trace
from houston_shared import plugins
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.secret_values import redact
from houston_shared.task_rules import Rules

WORDS = 300
"""Characters of a failure's own words."""
RULES: Mapping[str, Rule] = {
    "error_observation": Rule(5, wrong.error_observation),
    "null_action": Rule(1, wrong.null_action),
    "broken_file": Rule(3, wrong.broken_file),
    "contradicted_guidance": Rule(5, guidance.contradicted_guidance),
    "ignored_script": Rule(4, scripts.ignored_script),
    "transformers_inference": Rule(4, scripts.transformers_inference),
    "blind_edit": Rule(6, edits.blind_edit),
    "idle_compute": Rule(4, compute.idle_compute),
    "repeated_evaluation": Rule(1, evaluations.repeated_evaluation),
    "untimely_evaluation": Rule(3, evaluations.untimely_evaluation),
    "untimely_finish": Rule(3, evaluations.untimely_finish),
    "lowered_score": Rule(4, best.lowered_score),
    "after_best": Rule(3, best.after_best),
}


class RuleFailed(HoustonError):
    """A rule's code failed on one rollout: nothing is said of that rollout, for a mask that is
    silently missing is worse."""

    def __init__(self, name: str, problem: Exception) -> None:
        said = " ".join(redact(str(problem)).split())[:WORDS]
        super().__init__(
            f"The code of the rule {name!r} failed: {type(problem).__name__}"
            f"{f': {said}' if said else ''}.",
            "No verdict was stored.",
            ""
            if name in RULES
            else f"Mend the package that brings it, or take {name!r} out of `rules.packages`.",
        )


class RuleVerdict(NamedTuple):
    """One rule masks one step."""

    step: int
    rule: str
    version: int
    reason: str


def chosen(settings: Rules) -> dict[str, Rule]:
    """The rules that a task wants, Houston's first, then those of packages.

    Raises ConfigurationError for a name that is none, and for a package's rule that cannot be had.
    """
    if why := settings.trouble():
        raise ConfigurationError(why)
    found = dict(RULES)
    for name in settings.packages:
        if name in RULES:
            raise ConfigurationError(
                f"The rule {name!r} is Houston's own and always there.",
                next="Take it out of `packages`; `off` turns a rule off.",
            )
        found[name] = _package(name, plugins.load(plugins.RULES, name, "rule"))
    for name in (*settings.only, *settings.off):
        if name not in found:
            known = ", ".join(found)
            raise ConfigurationError(f"There is no rule {name!r}; there are: {known}.")
    wanted = settings.only or tuple(found)
    return {
        name: rule for name, rule in found.items() if name in wanted and name not in settings.off
    }


def found(trace: Trace) -> dict[int, list[RuleVerdict]]:
    """By step, the rules that mask it, in the catalog's order; each once, with its first reason.

    Only closed steps of the rollout itself: what a branch shares is its parent's to judge. Raises
    ConfigurationError as `chosen`, and RuleFailed.
    """
    settings = trace.task.rules
    own = {one.step for one in trace.steps if not one.inherited}
    by: dict[int, list[RuleVerdict]] = {}
    for name, rule in chosen(settings).items():
        said: dict[int, str] = {}
        for step, reason in _masks(name, rule, trace):
            said.setdefault(step, reason)
        for step in sorted(said.keys() & own):
            by.setdefault(step, []).append(RuleVerdict(step, name, rule.version, said[step]))
    return dict(sorted(by.items()))


def _masks(name: str, rule: Rule, trace: Trace) -> list[Finding]:
    """All that a rule finds. It reads what agents wrote: any of its code may fail on that."""
    try:
        return list(rule.masks(trace, trace.task.rules))
    except Exception as problem:
        raise RuleFailed(name, problem) from problem


def _package(name: str, masks: Any) -> Rule:
    """A package's rule."""
    if not callable(masks):
        raise ConfigurationError(f"The rule {name!r} is no function but {masks!r}.")

    def checked(trace: Trace, settings: Rules) -> Iterable[Finding]:
        return [Finding(int(step), str(reason)) for step, reason in masks(trace, settings)]

    return Rule(int(getattr(masks, "version", 1)), checked)
