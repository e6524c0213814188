"""A sampler in worlds of words whose fault no error shows, a person who sees it, and what each arm
of an ablation learns from them (APOLLO §4.4).

The sampler goes for a wrong box and says what nobody understands, each so often; it does what it
is told. The person speaks after a wrong box was opened, and at no other time, and masks that step.
A failed call is for the rules to mask: what they see without knowing which box is right. What is
done follows from a conversation, its world and a seed. `bench/guidance.py` trains and measures.
"""

import json
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from houston_daemon.experiments.experiment_home import ExperimentHome
from houston_daemon.experiments.scripted_agents import ANNOTATOR_AUTHOR
from houston_daemon.experiments.scripted_endpoint import (
    PlayedConversation,
    ScriptedAgent,
    ScriptedSpecs,
    ScriptedTurn,
)
from houston_daemon.suites.suite_results import SuiteRun
from houston_daemon.suites.word_worlds import LEVELS, WordWorldTask, word_world, wrong_actions
from houston_shared.records import StepRecord
from houston_shared.times_and_counts import number_ranges

SUITE, LEVEL, SPLIT = "word-worlds", LEVELS["medium"], "train"
"""Where it is sampled."""
CONDEMNED = "the wrong box was opened"
"""Reason of the person's masks."""
MOST_ERRORS = 3
"""Failed calls of a rollout, so that five steps are left of eight: a wrong box, its paper, and the
right box, its paper, its code."""
FAILED_SIGN = "Error: "
"""How the observation of a failed call begins."""
_ARGUMENTS = {"open": "box", "enter": "code"}
"""By tool the argument that takes all words; of others they are a fault."""
_NAMED_BOX = re.compile(r"open (\w+)")


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


def export_words(arm: str, rollouts: Sequence[str], tokenizer: Path, out: Path) -> list[str]:
    """The `houston` command that makes the rows of an arm, in the order of its rollouts."""
    return [
        *("export", *rollouts, "--as-named", "--format", "trl", "--out", str(out), "--force"),
        *("--leave-out", "--dialect", "words", "--tokenizer", str(tokenizer)),
        *ARMS[arm].export,
    ]


class PlayedWorld(NamedTuple):
    """The world behind a conversation."""

    task: WordWorldTask
    key: str
    """The same for the same world and seed, in every run: what draws follow from."""


class WordSampler:
    """The scripted agent. wrong: how often it goes for a wrong box. errors: how often a step is one
    that fails."""

    def __init__(
        self, world: Callable[[PlayedConversation], PlayedWorld], wrong: float, errors: float
    ) -> None:
        self._world = world
        self._wrong = wrong
        self._errors = errors

    def __call__(self, chat: PlayedConversation) -> ScriptedTurn:
        """The next step."""
        world, key = self._world(chat)
        done, failed = done_actions(chat)
        source = random.Random(f"{key}/{chat.step}")
        if failed < MOST_ERRORS and source.random() < self._errors:
            return _turn(wrong_actions(world, source))
        box = self._box(chat, world, key)
        opened = [at for at, action in enumerate(done) if action.startswith("open ")]
        if not opened or done[opened[-1]] != f"open {box}":
            return _turn(f"open {box}")
        if "read" not in done[opened[-1] :]:
            return _turn("read")
        return _turn(f"enter {' '.join(world.codes[box])}")

    def _box(self, chat: PlayedConversation, world: WordWorldTask, key: str) -> str:
        """The one that it was told last, else its own choice."""
        if chat.all_heard:
            return str(_NAMED_BOX.findall(chat.all_heard[-1])[-1])
        source = random.Random(f"{key}/box")
        others = [box for box in world.codes if box != world.right]
        return source.choice(others) if source.random() < self._wrong else world.right


def _turn(action: str) -> ScriptedTurn:
    name, _, words = action.partition(" ")
    return ScriptedTurn("", name, {_ARGUMENTS.get(name, "words"): words} if words else {})


def done_actions(chat: PlayedConversation) -> tuple[list[str], int]:
    """The actions that the world understood, in order, and how many calls failed."""
    done: list[str] = []
    failed = 0
    for message in chat.messages:
        if message["role"] == "assistant":
            function = message["tool_calls"][0]["function"]
            done.append(_action(function["name"], json.loads(function["arguments"] or "{}")))
        elif done and str(message["content"]).startswith(FAILED_SIGN):
            done.pop()
            failed += 1
    return done, failed


def _action(name: str, arguments: Mapping[str, Any]) -> str:
    return " ".join((name, *map(str, arguments.values())))


def next_message(chat: PlayedConversation, world: WordWorldTask) -> str:
    """What the person says now, or "": a wrong box is open, and nothing was said of it.

    It is heard one step later: the agent has begun that one when a step is seen.
    """
    opened = [action for action in done_actions(chat)[0] if action.startswith("open ")]
    if chat.all_heard or not opened or not is_wrong_open(world, opened[-1]):
        return ""
    return f"No, open {world.right}."


def is_wrong_open(world: WordWorldTask, action: str) -> bool:
    """Whether it opens a box of the world that does not hold the item."""
    name, _, box = action.partition(" ")
    return name == "open" and box in world.codes and box != world.right


def condemned_steps(world: WordWorldTask, steps: Iterable[StepRecord]) -> list[int]:
    """The steps that opened a wrong box: what the person spoke about, and masks."""
    return [
        step.step
        for step in steps
        if any(is_wrong_open(world, _action(c.name, c.arguments)) for c in step.sample.calls)
    ]


def mask_condemned(home: ExperimentHome, run: SuiteRun) -> int:
    """Mask what the person condemned in the rollouts of a run, as `houston verdict` does; how many
    steps."""
    masked = 0
    for world in run.worlds:
        rollout = world.attempts[0].rollout
        task = word_world(LEVEL, run.split, world.index)
        steps = condemned_steps(task, home.steps(rollout))
        home.mask_steps(rollout, number_ranges(steps), CONDEMNED, ANNOTATOR_AUTHOR)
        masked += len(steps)
    return masked


def sampling_agent(
    home: ExperimentHome, guided: bool, wrong: float, errors: float
) -> ScriptedAgent:
    """What an endpoint plays: the sampler, with the person beside it or without."""
    specs = ScriptedSpecs(home)

    def played(chat: PlayedConversation) -> PlayedWorld:
        spec = specs.spec_of(chat)
        index = int(spec.task.name.rpartition("-")[2])
        return PlayedWorld(word_world(LEVEL, SPLIT, index), f"{spec.seed}/{index}")

    sampler = WordSampler(played, wrong, errors)

    def play(chat: PlayedConversation) -> ScriptedTurn:
        if guided and (message := next_message(chat, played(chat).task)):
            home.queue_guidance(chat.rollout, message, ANNOTATOR_AUTHOR)
        return sampler(chat)

    return play
