"""A scripted critic's text on an episode in a world of words, and how it is obeyed: from these
traces a tiny policy first learns to be a critic, and an agent that reads a critique.

A critique names items with their boxes, `coin blue`, or says something general. Which box is right
is the rule that policy and critic must learn; the scripted critic knows it only now and then.
"""

import random
import re
from typing import NamedTuple

from houston_daemon.review.critic.critique_prompt import critique_prompt, load_critique_template
from houston_daemon.suites.word_episodes import WordEpisode, WordSpeaker
from houston_daemon.suites.word_worlds import WordWorldTask

GENERAL = ("try again", "look first", "read the paper first", "no go back then open again")
"""Critiques that help nobody."""
_NAMED = re.compile(r"(\w+) (\w+)")


class CritiqueTrace(NamedTuple):
    """A critique as a row of the warm-up: like a `WordEpisode` with one answer."""

    ids: list[int]
    answers: list[tuple[int, int]]


def scripted_critique(
    world: WordWorldTask,
    missed: list[str],
    source: random.Random,
    right: float,
    general: float,
) -> str:
    """One critique. missed: items that were not found. right: how often the box that it names is
    the right one. general: how often it names none."""
    if source.random() < general:
        return source.choice(GENERAL)
    some = missed if source.random() < 0.7 else [source.choice(list(world.wanted))]
    return " ".join(f"{item} {_named_box(world, item, source, right)}" for item in some)


def _named_box(world: WordWorldTask, item: str, source: random.Random, right: float) -> str:
    box = world.wanted[item]
    others = [other for other in world.codes if other != box]
    return box if source.random() < right else source.choice(others)


def named_boxes(critique: str, world: WordWorldTask) -> dict[str, str]:
    """By item of the world the box that a critique names."""
    return {
        item: box
        for item, box in _NAMED.findall(critique)
        if item in world.wanted and box in world.codes
    }


def critique_trace(
    speaker: WordSpeaker, episode: WordEpisode, text: str, window: int
) -> CritiqueTrace:
    """The ids of a critique of an ended episode, after exactly the prompt that a critic gets.

    window: that of the model.
    """
    template = load_critique_template(dialect=speaker.dialect.name)
    prompt = critique_prompt(episode.attempt(), template, speaker.tokens, window)
    ids = speaker.tokens.encode(speaker.dialect.question(prompt.system, prompt.message))
    answer = speaker.answer_ids(text)
    return CritiqueTrace([*ids, *answer], [(len(ids), len(ids) + len(answer))])
