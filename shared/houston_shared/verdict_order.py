"""Which of the verdicts on a step counts: the one place that says so, for rows and for people.

A person's counts before all others. An observation that is an error is one whatever was meant: the
rules' mask that names it counts before a judge's keep, whichever of the two came later. Else a
judge's verdict counts before the rules'. It is told by the stored reason, so that what was stored
before this was so counts alike.
"""

from houston_shared import rule_reasons

ERROR = "error_observation"
"""The rule that no judge overrules."""
HUMAN, JUDGE_MASKS, ERROR_MASKS, JUDGE_KEEPS, RULE = range(5)


def rank(source: str, keep: bool, error: bool) -> int:
    """The place of a verdict among those on its step: the lowest counts.

    source: `human`, `judge` or `rule`. error: for a rule's mask, whether it `names_error`; of
    others it says nothing.
    """
    if source == "human":
        return HUMAN
    if source == "judge":
        return JUDGE_KEEPS if keep else JUDGE_MASKS
    return ERROR_MASKS if error and not keep else RULE


def names_error(reason: str) -> bool:
    """Whether the reason of a rule's mask names the rule that no judge overrules."""
    return any(one.rule == ERROR for one in rule_reasons.split(reason))
