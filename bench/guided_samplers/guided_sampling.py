"""Rollouts to learn from whose sampler has a fault that no error shows, a person who sees it, and
what each arm of an ablation learns from them (APOLLO §4.4).

A `GuidedSuite` says what the sampler does next, what the person says of it, and which calls the
person condemns: `guided_words`, `guided_files`. A failed call is for the rules to mask, which see
it without knowing what is right. What is done follows from a conversation, its task and a seed.
`bench/guidance.py` trains and measures.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from houston_daemon.experiments.experiment_home import ExperimentHome
from houston_daemon.experiments.scripted_agents import ANNOTATOR_AUTHOR
from houston_daemon.experiments.scripted_endpoint import (
    ChatHistory,
    ScriptedAgent,
    ScriptedSpecs,
    ScriptedTurn,
)
from houston_daemon.suites.imperfect_agents import AgentHabits
from houston_daemon.suites.suite_catalog import find_suite
from houston_daemon.suites.suite_results import SuiteRun
from houston_shared.times_and_counts import number_ranges

TaskT = TypeVar("TaskT")
SPLIT = "train"
"""Where it is sampled."""
FAILED_SIGN = "Error: "
"""How the observation of a failed call begins."""


@dataclass(frozen=True, slots=True)
class GuidedArm:
    """What an arm learns from."""

    guided: bool
    """Whether a person spoke in its rollouts, and masked what they condemned."""
    export: tuple[str, ...] = ()
    """Further words of `houston export`; without any, rules and verdicts count."""


ARMS = {
    "without-interaction": GuidedArm(guided=False),
    "without-masking": GuidedArm(guided=True, export=("--no-masking",)),
    "full": GuidedArm(guided=True),
}
"""The trained arms; `base` is the model before."""


class PlayedCall(Protocol):
    """A call by its tool and arguments."""

    @property
    def name(self) -> str:
        """The tool."""
        ...

    @property
    def arguments(self) -> Mapping[str, Any]:
        """What it takes."""
        ...


@dataclass(frozen=True, slots=True)
class GuidedSuite(Generic[TaskT]):
    """How one suite is sampled with and without a person."""

    name: str
    task: Callable[[int], TaskT]
    """The task of a number in the train split."""
    turn: Callable[[ChatHistory, TaskT, str, AgentHabits], ScriptedTurn]
    """The sampler's next step. The text is the same for the same task and seed, in every run: what
    draws follow from."""
    message: Callable[[ChatHistory, TaskT], str]
    """What the person says now, or "". It is heard one step later: the agent has begun that one
    when a step is seen."""
    condemns: Callable[[TaskT, PlayedCall], bool]
    """Whether the person masks a step with this call."""
    reason: str
    """Of the person's masks."""


def done_calls(chat: ChatHistory) -> tuple[list[ScriptedTurn], int]:
    """The calls that did not fail, in order, and how many failed."""
    done: list[ScriptedTurn] = []
    failed = 0
    for message in chat.messages:
        if message["role"] == "assistant":
            function = message["tool_calls"][0]["function"]
            arguments = json.loads(function["arguments"] or "{}")
            done.append(ScriptedTurn("", function["name"], arguments))
        elif done and str(message["content"]).startswith(FAILED_SIGN):
            done.pop()
            failed += 1
    return done, failed


def drawn(key: str, what: object) -> random.Random:
    """Chance that is the same for the same task, seed and `what`."""
    return random.Random(f"{key}/{what}")


def sampling_agent(
    home: ExperimentHome, suite: GuidedSuite[Any], guided: bool, habits: AgentHabits
) -> ScriptedAgent:
    """What an endpoint plays: the sampler, with the person beside it or without."""
    specs = ScriptedSpecs(home)

    def play(chat: ChatHistory) -> ScriptedTurn:
        spec = specs.spec_of(chat)
        index = int(spec.task.name.rpartition("-")[2])
        task = suite.task(index)
        if guided and (message := suite.message(chat, task)):
            home.queue_guidance(chat.rollout, message, ANNOTATOR_AUTHOR)
        return suite.turn(chat, task, f"{spec.seed}/{index}", habits)

    return play


def mask_condemned(home: ExperimentHome, suite: GuidedSuite[Any], run: SuiteRun) -> int:
    """Mask what the person condemned in the rollouts of a run, as `houston verdict` does; how many
    steps."""
    masked = 0
    for world in run.worlds:
        task, rollout = suite.task(world.index), world.attempts[0].rollout
        steps = [
            step.step
            for step in home.steps(rollout)
            if any(suite.condemns(task, call) for call in step.sample.calls)
        ]
        home.mask_steps(rollout, number_ranges(steps), suite.reason, ANNOTATOR_AUTHOR)
        masked += len(steps)
    return masked


def export_words(
    arm: str, suite: str, rollouts: Sequence[str], tokenizer: Path, out: Path
) -> list[str]:
    """The `houston` command that makes the rows of an arm, in the order of its rollouts."""
    return [
        *("export", *rollouts, "--as-named", "--format", "trl", "--out", str(out), "--force"),
        *("--leave-out", "--dialect", find_suite(suite).dialect, "--tokenizer", str(tokenizer)),
        *ARMS[arm].export,
    ]
