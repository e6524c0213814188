"""No world of one split is in another, whatever the seeds; a seed gives the same world always."""

from collections import Counter
from pathlib import Path
from typing import get_args

import pytest
import textworld
from textworld.generator import make_game

from houston_daemon.environments.simulation import scienceworld_environment, textworld_environment
from houston_daemon.environments.simulation.scienceworld_environment import (
    SIMPLIFICATIONS,
    VARIATIONS,
    variations,
)
from houston_daemon.environments.simulation.simulator_protocol import Impossible
from houston_daemon.environments.simulation.textworld_simulator import game_hash, generate, split_of
from houston_shared.task_tables import ScienceWorldSettings, TextWorldSettings, WorldSplit
from tests.support.gold_sequences import Gold

SPLITS: tuple[WorldSplit, ...] = get_args(WorldSplit)


@pytest.fixture(scope="module")
def gold() -> Gold:
    return Gold()


def test_the_table_is_that_of_the_simulator(gold: Gold) -> None:
    world = gold.world
    assert {name: world.getTaskMaxVariations(name) for name in world.getTaskNames()} == VARIATIONS
    assert set(world.getPossibleSimplifications().split(", ")) == {*SIMPLIFICATIONS} - {"easy"}
    for task in ("identify-life-stages-1", "identify-life-stages-2", "lifespan-longest-lived"):
        world.load(task, 0, "", False)  # 14, 10 and 125 variations: no quarter of them is whole
        assert list(world.getVariationsTrain()) == list(variations(task, "train"))
        assert list(world.getVariationsDev()) == list(variations(task, "dev"))
        assert list(world.getVariationsTest()) == list(variations(task, "test"))


def pairs(settings: ScienceWorldSettings, seeds: range) -> list[tuple[str, int]]:
    found = [scienceworld_environment.choose_variation(settings, seed) for seed in seeds]
    return [(one["task"], one["variation"]) for one in found]


def test_no_variation_is_in_two_splits_and_every_one_is_in_one() -> None:
    everything: Counter[tuple[str, int]] = Counter()
    for task, total in VARIATIONS.items():
        for split in SPLITS:
            there = variations(task, split)
            given = pairs(ScienceWorldSettings(tasks=(task,), split=split), range(len(there)))
            assert len(set(given)) == len(there), "all of them before one comes again"
            everything.update(given)
        assert len([one for one in everything if one[0] == task]) == total
    assert set(everything.values()) == {1}


def test_seeds_take_turns_among_tasks() -> None:
    first = pairs(ScienceWorldSettings(), range(30))
    assert [task for task, _ in first] == list(VARIATIONS)
    assert pairs(ScienceWorldSettings(repeat=4), range(120)) == [
        one for one in first for _ in range(4)
    ]
    fixed = ScienceWorldSettings(tasks=("boil", "melt"), split="test", variation=25)
    assert pairs(fixed, range(3)) == [("boil", 25), ("melt", 25), ("boil", 25)]


def small(split: WorldSplit, seed: int) -> textworld.Game:
    settings = TextWorldSettings(rooms=1, objects=4, quest_length=1, split=split)
    return generate(textworld_environment.choose_game(settings, seed, Path("unused")))[0]


@pytest.mark.slow
def test_no_game_is_in_two_splits() -> None:
    made = {split: [small(split, seed) for seed in range(2)] for split in SPLITS}
    for split, some in made.items():
        assert {split_of(game) for game in some} == {split}
    assert game_hash(small("train", 1)) == game_hash(made["train"][1])


def test_no_seed_of_the_generator_belongs_to_two_numbers() -> None:
    ranges = [
        textworld_environment.choose_game(TextWorldSettings(), seed, Path("unused"))["seeds"]
        for seed in range(50)
    ]
    every = [seed for first, count in ranges for seed in range(first, first + count)]
    assert len(set(every)) == len(every)
    grouped = [
        textworld_environment.choose_game(TextWorldSettings(repeat=3), seed, Path("unused"))
        for seed in range(6)
    ]
    assert grouped[0] == grouped[2] != grouped[3] == grouped[5]
    assert textworld_environment.choose_game(TextWorldSettings(seed=7), 3, Path("unused"))[
        "seeds"
    ] == [
        7,
        1,
    ]


def test_a_game_under_other_names_is_the_same_game() -> None:
    def game(grammar: int) -> textworld.Game:
        options = textworld.GameOptions()
        options.nb_rooms, options.nb_objects, options.quest_length = 3, 6, 2
        options.seeds = {"map": 1, "objects": 2, "quest": 3, "grammar": grammar}
        return make_game(options)

    one, other = game(4), game(5)
    assert one.objective != other.objective
    assert game_hash(one) == game_hash(other)


def test_settings_with_too_few_games_say_so() -> None:
    settings = textworld_environment.choose_game(
        TextWorldSettings(rooms=1, objects=4, quest_length=1, seed=0), 0, Path("unused")
    )
    only = split_of(generate(settings)[0])
    other = next(split for split in SPLITS if split != only)
    with pytest.raises(Impossible, match="too few different ones"):
        generate({**settings, "split": other})
