"""How right the rules are on judged excerpts of rollouts (`rule_cases.toml`): precision and recall.

Every step of every case counts for every rule: masked as the case says, masked though it should be
kept, or kept though it should be masked.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple

from houston_daemon.review.rollout_trace import RolloutTrace
from houston_daemon.review.rules import rule_catalog
from tests.support import traced_rollouts as made
from tests.support.traced_rollouts import EVALUATED, Done, Step

FILE = Path(__file__).with_suffix(".toml")
TASKS = {
    "": "",
    "evaluate": EVALUATED,
    "gpus": "[rules]\ngpus = 8\n",
    "vllm": "[rules]\nvllm = true\n",
}
Masks = dict[int, frozenset[str]]
"""By step, the rules that mask it; steps that are kept are left out."""


@dataclass(frozen=True)
class Case:
    """One judged excerpt."""

    name: str
    trace: RolloutTrace
    expected: Masks
    held_out: bool

    @property
    def actual(self) -> Masks:
        """What the rules say."""
        return {
            step: frozenset(mask.rule for mask in verdicts)
            for step, verdicts in rule_catalog.run_rules(self.trace).items()
        }


class Accuracy(NamedTuple):
    """Of one rule, in steps."""

    right: int
    """Masked as they should be."""
    wrong: int
    """Masked though they should be kept."""
    missed: int

    @property
    def precision(self) -> float:
        return self.right / max(1, self.right + self.wrong)

    @property
    def recall(self) -> float:
        return self.right / max(1, self.right + self.missed)


def cases() -> list[Case]:
    """All of them, in the order of the file."""
    records = tomllib.loads(FILE.read_text(encoding="utf-8"))["case"]
    return [_case(record) for record in records]


def accuracy(among: list[Case]) -> dict[str, Accuracy]:
    """By rule that a case names or that masks something, in the catalog's order."""
    judged = [(case.expected, case.actual) for case in among]
    counts = {
        rule: Accuracy(*map(sum, zip(*_counts(rule, judged), strict=True)))
        for rule in rule_catalog.RULES
    }
    return {rule: count for rule, count in counts.items() if any(count)}


def interval(part: int, whole: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    if not whole:
        return 0.0, 1.0
    z, share = 1.96, part / whole
    middle = share + z * z / (2 * whole)
    reach = z * sqrt(share * (1 - share) / whole + z * z / (4 * whole * whole))
    below = 1 + z * z / whole
    return max(0.0, (middle - reach) / below), min(1.0, (middle + reach) / below)


def _counts(rule: str, judged: list[tuple[Masks, Masks]]) -> Iterator[tuple[int, int, int]]:
    yield 0, 0, 0
    for expected, actual in judged:
        right = {step for step, rules in expected.items() if rule in rules}
        masked = {step for step, rules in actual.items() if rule in rules}
        yield len(right & masked), len(masked - right), len(right - masked)


def _case(record: Mapping[str, Any]) -> Case:
    expected = {
        number: frozenset(step["mask"])
        for number, step in enumerate(record["steps"], 1)
        if "mask" in step
    }
    for number, rules in record.get("masks", {}).items():
        step = int(number)
        expected[step] = expected.get(step, frozenset()) | frozenset(rules)
    trace = made.traced([_step(step) for step in record["steps"]], TASKS[record.get("task", "")])
    return Case(record["name"], trace, expected, bool(record.get("held_out")))


def _step(record: dict[str, Any]) -> Step:
    more = {key: record[key] for key in ("said", "changed", "malformed") if key in record}
    calls = record.get("calls") or ([] if "malformed" in record else [record])
    return Step(*map(_call, calls), **more)


def _call(record: dict[str, Any]) -> Done:
    session = {"session": record["session"]} if "session" in record else {}
    match record:
        case {"run": command}:
            return made.run(command, record.get("says", ""), record.get("code", 0), **session)
        case {"begin": command}:
            return made.begin(command, record.get("says", ""), **session)
        case {"output": text}:
            return made.output(text, record["running"], record.get("code"), **session)
        case {"look": path}:
            return made.look(path, record.get("says", "1\tx"))
        case {"edit": path}:
            return made.edit(path)
        case {"create": path}:
            change = "replaced" if record.get("replaces") else "created"
            return made.create(path, record["text"], change)
        case {"list": text}:
            return made.listing(text)
        case {"sleep": seconds}:
            return made.sleep(seconds)
        case {"score": value}:
            return made.score(value)
        case {"format": error}:
            return made.score(None, "format", error)
        case {"finish": _}:
            return made.finish()
        case {"failed": name}:
            return made.call(name, "error", record["says"], False, error=record["says"])
        case {"refused": name}:
            return made.call(name, "error", record["says"], False, refused=record["says"])
    raise ValueError(f"no call: {record}")


def table(among: list[Case]) -> list[str]:
    """Markdown: a line per rule, counts and intervals beside the figures."""
    lines = ["| rule | precision | recall | right, wrong, missed |", "|---|---|---|---|"]
    for rule, figures in accuracy(among).items():
        masked, should = figures.right + figures.wrong, figures.right + figures.missed
        shares = [
            f"{figures.right / whole:.2f} ({low:.2f}–{high:.2f})" if whole else "–"
            for whole in (masked, should)
            for low, high in [interval(figures.right, whole)]
        ]
        counts = f"{figures.right}, {figures.wrong}, {figures.missed}"
        lines.append(f"| `{rule}` | {shares[0]} | {shares[1]} | {counts} |")
    return lines


if __name__ == "__main__":
    every = cases()
    for title, held_out in (("written before", False), ("held out", True)):
        mine = [case for case in every if case.held_out == held_out]
        print(f"{len(mine)} cases {title}")
        print("\n".join(table(mine)))
        for case in mine:
            if case.actual != case.expected:
                actual = {k: sorted(v) for k, v in case.actual.items()}
                meant = {k: sorted(v) for k, v in case.expected.items()}
                print(f"  {case.name}: found {actual}, expected {meant}")
