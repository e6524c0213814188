"""The table of rules with their versions, and how they are run on a rollout.

`RULES` names every rule in the order in which a step lists them: add one here. Packages add others
by entry point; a task turns rules off or names the only ones it wants. If a rule's code fails, that
rollout gets no verdicts (`RuleFailed`). `verdict_updates` uses the findings.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from houston_daemon.review.rollout_trace import RolloutTrace, Rule, RuleFinding
from houston_daemon.review.rules import (
    blind_edit_rule,
    error_rules,
    evaluation_rules,
    guidance_rule,
    idle_gpu_rule,
    script_rules,
)
from houston_shared import plugins
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.secret_redaction import redact
from houston_shared.task_tables import RuleSettings

MAX_PROBLEM_CHARACTERS = 300
"""Characters of a failure's own words."""
RULES: Mapping[str, Rule] = {
    "error_observation": Rule(5, error_rules.error_observation),
    "null_action": Rule(1, error_rules.null_action),
    "broken_file": Rule(3, error_rules.broken_file),
    "contradicted_guidance": Rule(6, guidance_rule.contradicted_guidance),
    "ignored_script": Rule(4, script_rules.ignored_script),
    "transformers_inference": Rule(4, script_rules.transformers_inference),
    "blind_edit": Rule(6, blind_edit_rule.blind_edit),
    "idle_compute": Rule(4, idle_gpu_rule.idle_compute),
    "repeated_evaluation": Rule(1, evaluation_rules.repeated_evaluation),
    "untimely_evaluation": Rule(3, evaluation_rules.untimely_evaluation),
    "untimely_finish": Rule(3, evaluation_rules.untimely_finish),
    "lowered_score": Rule(4, evaluation_rules.lowered_score),
    "after_best": Rule(3, evaluation_rules.after_best),
}


class RuleFailed(HoustonError):
    """A rule's code failed on one rollout: that rollout gets no verdicts, because a silently
    missing mask is worse."""

    def __init__(self, name: str, problem: Exception) -> None:
        words = " ".join(redact(str(problem)).split())[:MAX_PROBLEM_CHARACTERS]
        super().__init__(
            f"The code of the rule {name!r} failed: {type(problem).__name__}"
            f"{f': {words}' if words else ''}.",
            "No verdict was stored.",
            ""
            if name in RULES
            else f"Fix the package that provides it, or take {name!r} out of `rules.packages`.",
        )


class RuleMask(NamedTuple):
    """One rule masks one step."""

    step: int
    rule: str
    version: int
    reason: str


def load_rules(settings: RuleSettings) -> dict[str, Rule]:
    """The rules that a task wants, Houston's first, then those of packages.

    Raises ConfigurationError for a name that is none, and for a package's rule that cannot be had.
    """
    if reason := settings.trouble():
        raise ConfigurationError(reason)
    rules = dict(RULES)
    for name in settings.packages:
        if name in RULES:
            raise ConfigurationError(
                f"The rule {name!r} is built into Houston and always exists.",
                next="Take it out of `packages`; `off` turns a rule off.",
            )
        rules[name] = _package_rule(name, plugins.load_plugin(plugins.RULE_GROUP, name, "rule"))
    for name in (*settings.only, *settings.off):
        if name not in rules:
            raise ConfigurationError(f"There is no rule {name!r}; there are: {', '.join(rules)}.")
    rule_names = settings.only or tuple(rules)
    return {
        name: rule
        for name, rule in rules.items()
        if name in rule_names and name not in settings.off
    }


def run_rules(trace: RolloutTrace) -> dict[int, list[RuleMask]]:
    """By step, the rules that mask it, in the catalog's order; each once, with its first reason.

    Only closed steps of the rollout itself: what a branch shares is its parent's to judge. Raises
    ConfigurationError as `load_rules`, and RuleFailed.
    """
    settings = trace.task.rules
    own = {step.step for step in trace.steps if not step.inherited}
    masks: dict[int, list[RuleMask]] = {}
    for name, rule in load_rules(settings).items():
        reasons: dict[int, str] = {}
        for step, reason in _run_rule(name, rule, trace):
            reasons.setdefault(step, reason)
        for step in sorted(reasons.keys() & own):
            masks.setdefault(step, []).append(RuleMask(step, name, rule.version, reasons[step]))
    return dict(sorted(masks.items()))


def _run_rule(name: str, rule: Rule, trace: RolloutTrace) -> list[RuleFinding]:
    """All that a rule finds. It reads what agents wrote: any of its code may fail on that."""
    try:
        return list(rule.masks(trace, trace.task.rules))
    except Exception as problem:
        raise RuleFailed(name, problem) from problem


def _package_rule(name: str, masks: Any) -> Rule:
    """A package's rule."""
    if not callable(masks):
        raise ConfigurationError(f"The rule {name!r} is not a function but {masks!r}.")

    def checked(trace: RolloutTrace, settings: RuleSettings) -> Iterable[RuleFinding]:
        return [RuleFinding(int(step), str(reason)) for step, reason in masks(trace, settings)]

    return Rule(int(getattr(masks, "version", 1)), checked)
