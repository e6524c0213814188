"""By whom and by what steps were judged: the versions of rules and judges behind a set of rows."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from houston_daemon.training.rows import beside
from houston_daemon.training.rows.ruled import RuleRuns
from houston_daemon.training.rows.soundness import FORGED, NOT_READ_BACK
from houston_shared import rule_reasons
from houston_shared.plural import many
from houston_shared.secret_values import redact
from houston_shared.store.queries import lineage, steps, verdicts
from houston_shared.store.reader import Reader

_BY_RULE = "mask: rule"
"""How the reason of a step begins that a rule masks."""


LEFT_OUT = "left out: its consumer would mistrain it"


class Judged(msgspec.Struct, frozen=True):
    """Verdicts that stand on the steps of some rollouts."""

    rules: dict[str, int]
    """`name@version` → steps that it masks."""
    judges: dict[str, int]
    """Judge as it named itself → steps that it judged."""
    people: int
    """Steps that a person judged."""
    counts: dict[str, int]
    """Steps by the verdict that counts: `keep by human`, `mask by rule`, …"""
    ran: dict[str, int] = {}
    """`name@version` of each rule that was run for the export → rollouts on which it was."""
    steps: int = 0
    """Closed steps of the rollouts, a shared one once."""
    unjudged: int = 0
    """Of them, those of which neither a judge nor a person said anything."""

    @property
    def told(self) -> str:
        """Who looked at the steps, in a sentence."""
        who = "rules mask" if self.ran else "no rule was run, stored verdicts of rules mask"
        rules = f"{who} {self.counts.get('mask by rule', 0):,}"
        share = f"{100 * self.unjudged / max(1, self.steps):.0f} %"
        nobody = f"nobody judged {self.unjudged:,} ({share}): neither a judge nor a person"
        return f"Of {many(self.steps, 'step')} {rules}; {nobody}."


def read(reader: Reader, rollouts: Sequence[str], runs: RuleRuns) -> Judged:
    """What stands on rollouts (whole ids), once on a step that several share; short reads.

    runs: what rules say, as the rows have it.
    """
    rules: Counter[str] = Counter()
    judges: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    people, unjudged, seen = 0, 0, set[tuple[str, int]]()
    for rollout in rollouts:
        line = reader.run(lineage.stretches(rollout))
        stored = reader.run(verdicts.standing(rollout))
        said = runs.of(rollout)
        for row in reader.run(steps.rows(rollout)):
            whose = (beside.whose(rollout, line, row.step), row.step)
            if row.observation_seq is None or whose in seen:
                continue
            seen.add(whose)
            given = stored.get(row.step, [])
            given = given if said is None else said.given(row, given)
            unjudged += all(one.source == "rule" for one in given)
            if not given:
                continue
            counts[f"{given[0].verdict} by {given[0].source}"] += 1
            for one in given:
                people += one.source == "human"
                if one.source == "rule":
                    rules.update(_rules(one.reason) or {one.by})
                if one.source == "judge":
                    judges[redact(one.by)] += 1
    return Judged(
        _sorted(rules), _sorted(judges), people, _sorted(counts), _sorted(Counter(runs.ran)),
        len(seen), unjudged,
    )  # fmt: skip


def told(manifest: dict[str, Any]) -> str:
    """The same sentence of a manifest that was read back; data from elsewhere may have none."""
    try:
        found = msgspec.convert(manifest.get("verdicts"), Judged)
    except msgspec.ValidationError:
        return "Nobody knows who judged these rows: their manifest does not say."
    return found.told if found.steps else "These rows are of before rules were run on every export."


def _rules(reason: str) -> set[str]:
    """`name@version` of the rules that a reason names; it quotes agents, who name packages so."""
    return {f"{one.rule}@{one.version}" for one in rule_reasons.split(reason)}


def _sorted(counted: Counter[str]) -> dict[str, int]:
    return dict(sorted(counted.items()))


def why(text: str) -> str:
    """A reason of a weight of 0 as a kind that can be counted: without steps, rows and words."""
    if text.startswith(_BY_RULE):
        rules = sorted(_rules(text.removeprefix(_BY_RULE).lstrip()))
        return f"{_BY_RULE} {', '.join(rules)}".rstrip()
    for kind in ("mask: judge", "mask: human", "no action", FORGED, NOT_READ_BACK):
        if text.startswith(kind):
            return kind
    for kind, said in _ELSEWHERE.items():
        if text.startswith(kind):
            return said
    return text


_ELSEWHERE = {
    "trained in row": "trained in another row",
    "masked in row": "masked in another row",
    "trained with rollout": "trained in another rollout",
    "masked with rollout": "masked in another rollout",
    "left out with row": LEFT_OUT,
}
