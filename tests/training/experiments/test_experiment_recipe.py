"""Recipes: the packaged ones are whole, and what is wrong is said."""

from pathlib import Path

import pytest

from houston_daemon.experiments import experiment_recipe
from houston_daemon.experiments.experiment_tasks import write_world_task
from houston_shared.errors import ConfigurationError
from houston_shared.task import load_task

ORDERS = 'name = "mine"\n[orders]\nheld_out = 4\n'
WORLDS = """
[[worlds]]
name = "coins"
domain = "navigation"
environment = "textworld"
instructions = "Find the coin."
[worlds.world]
game = "coin_collector"
"""


@pytest.mark.parametrize("name", sorted(experiment_recipe.packaged_recipes()))
def test_the_packaged_recipes_can_be_run(name: str, tmp_path: Path) -> None:
    recipe = experiment_recipe.read_recipe(experiment_recipe.find_recipe(name))
    for worlds in recipe.worlds:
        for split in ("train", "test"):
            task = load_task(
                write_world_task(tmp_path, worlds, split, recipe.model, recipe.sandbox)
            ).task
            assert task.environment == worlds.environment
            assert getattr(task, worlds.environment).split == split
            assert task.tools == ("act", "finish")
            assert task.rules.error_patterns


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('name = "mine"', "nothing is measured"),
        (f"{ORDERS}{WORLDS}", "has no words"),
        (f"{ORDERS}{WORLDS}{WORLDS}", "the same name"),
        (f"seeds = []\n{ORDERS}", "needs at least one seed"),
        (f"seeds = [1, 1]\n{ORDERS}", "needs at least one seed"),
        (f'arms = ["all"]\n{ORDERS}', "arms"),
        (f"{ORDERS}epochs = 3\n", "epochs"),
    ],
)
def test_what_is_wrong_in_a_recipe_is_said(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=problem):
        experiment_recipe.read_recipe(file)


def test_an_unknown_recipe_names_those_there_are() -> None:
    with pytest.raises(ConfigurationError, match="ablation"):
        experiment_recipe.find_recipe("nothing-like-it")


def test_fewer_and_more_seeds() -> None:
    recipe = experiment_recipe.read_recipe(experiment_recipe.find_recipe("ablation"))
    assert experiment_recipe.with_seeds(recipe, 1).seeds == recipe.seeds[:1]
    more = experiment_recipe.with_seeds(recipe, len(recipe.seeds) + 2).seeds
    assert more[: len(recipe.seeds)] == recipe.seeds
    assert len(set(more)) == len(recipe.seeds) + 2
