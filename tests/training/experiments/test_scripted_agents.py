"""The scripted expert, the annotator and the judge: what drifts, what is said, what is masked."""

import json
from typing import Any

import pytest

from houston_daemon.experiments.experiment_recipe import AnnotatorRecipe, ExpertRecipe
from houston_daemon.experiments.scripted_agents import (
    ImperfectExpert,
    SimulatedAnnotator,
    measure_progress,
)
from houston_daemon.experiments.scripted_endpoint import ChatHistory, ScriptedTurn
from houston_shared.times_and_counts import number_ranges

WAY = ("go east", "open chest", "take coin")
LOOKS = ("look", "inventory")
WORDS = AnnotatorRecipe(
    patience=2, failing=("Use plain commands.",), idle=("Go on.", "Really, go on.")
)


def said(turn: ScriptedTurn) -> dict[str, Any]:
    function = {"name": turn.name, "arguments": json.dumps(turn.arguments)}
    return {"role": "assistant", "content": turn.thought, "tool_calls": [{"function": function}]}


def played(
    habits: ExpertRecipe, words: AnnotatorRecipe | None = None, task: str = "t"
) -> list[str]:
    """What an expert does to its end, with an annotator beside it or alone."""
    expert = ImperfectExpert(habits, 1, lambda chat: (WAY, LOOKS))
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": task},
    ]
    for _ in range(30):
        chat = ChatHistory(tuple(messages))
        word = ""
        if words:
            annotator = SimulatedAnnotator(words, WAY)
            word = annotator.next_message(chat.actions, chat.observation, len(chat.all_guidance))
        turn = expert(chat)
        observation = f"done\n<real_user>{word}</real_user>" if word else "done"
        messages += [said(turn), {"role": "tool", "content": observation}]
        if turn.name == "finish":
            return list(ChatHistory(tuple(messages)).actions)
    raise AssertionError("it never finishes")


def test_without_habits_it_plays_the_solution() -> None:
    assert played(ExpertRecipe(drift=0.0)) == [*WAY, "finish"]


@pytest.mark.parametrize("habit", ["guess", "dither", "quit"])
def test_alone_a_drift_goes_on_and_may_end_it_too_early(habit: str) -> None:
    habits = ExpertRecipe(drift=1.0, habits=(habit,), steps=4, gives_up=1.0)  # type: ignore[arg-type]
    actions = played(habits)
    assert actions[-1] == "finish"
    assert not set(actions) & set(WAY)
    assert len(actions) == (4 if habit == "quit" else 5)


@pytest.mark.parametrize("habit", ["guess", "dither", "quit"])
def test_a_word_brings_it_back_each_time(habit: str) -> None:
    habits = ExpertRecipe(drift=1.0, habits=(habit,), steps=4, gives_up=1.0)  # type: ignore[arg-type]
    actions = played(habits, WORDS)
    assert [action for action in actions if action in WAY] == list(WAY)
    assert actions[-1] == "finish"
    assert len(actions) == 4 * len(WAY) + 1  # three steps of drift before each


def test_a_drift_that_is_not_given_up_comes_back_by_itself() -> None:
    actions = played(ExpertRecipe(drift=1.0, habits=("dither",), steps=2, gives_up=0.0))
    assert actions == ["look", "inventory", WAY[0], "look", "inventory", WAY[1], "look",
                       "inventory", WAY[2], "finish"]  # fmt: skip


def test_where_it_drifts_follows_from_the_world_not_from_who_listens() -> None:
    habits = ExpertRecipe(drift=0.5, gives_up=0.0, steps=3)
    firsts = [
        [next(n for n, action in enumerate(played(habits, words, f"task {n}")) if action == WAY[0])
         for n in range(12)]
        for words in (None, WORDS)
    ]  # fmt: skip
    assert [bool(n) for n in firsts[0]] == [bool(n) for n in firsts[1]]
    assert 0 < sum(map(bool, firsts[0])) < 12


@pytest.mark.parametrize(
    ("actions", "observation", "before", "word"),
    [
        (("go east",), "", 0, ""),
        (("look",), "", 0, ""),
        (("look", "look"), "You see a room.", 0, "Go on."),
        (("look", "look", "look"), "", 1, ""),
        (("look", "look", "look", "look"), "", 1, "Really, go on."),
        (("do it", "do it"), "That's not a verb I recognise.", 0, "Use plain commands."),
        (("look", "go east", "look"), "", 0, ""),
        ((*WAY, "look", "look"), "", 0, ""),
    ],
)
def test_the_annotator_speaks_only_when_the_agent_drifts(
    actions: tuple[str, ...], observation: str, before: int, word: str
) -> None:
    assert SimulatedAnnotator(WORDS, WAY).next_message(actions, observation, before) == word


@pytest.mark.parametrize(
    ("actions", "steps_done", "idle", "good"),
    [
        (("go east", "open chest"), 2, 0, (True, True)),
        (("look", "Go  EAST"), 1, 0, (False, True)),
        (("open chest", "take coin"), 0, 2, (False, False)),
        (("finish",), 0, 1, (False,)),
        ((*WAY, "finish"), 3, 0, (True, True, True, True)),
        ((*WAY, "look", "finish"), 3, 0, (True, True, True, False, True)),
        (("go east", "go east", "open chest"), 2, 0, (True, False, True)),
        ((), 0, 0, ()),
    ],
)
def test_progress_on_a_solution(
    actions: tuple[str, ...], steps_done: int, idle: int, good: tuple[bool, ...]
) -> None:
    assert measure_progress(WAY, actions) == (steps_done, idle, good)


def test_steps_that_follow_each_other_are_masked_together() -> None:
    assert number_ranges([1, 2, 3, 7, 9, 10]) == [(1, 3), (7, 7), (9, 10)]
    assert number_ranges([]) == []
