"""Making a game of a split. Runs in the child process.

A game belongs to a split by a hash of its structure: its map, what lies where, and its quest, with
none of the names that were drawn for them. So no game of one split, whatever its seed, is a game of
another under other names.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import textworld
from textworld.challenges import coin_collector, cooking, treasure_hunter
from textworld.generator import KnowledgeBase, make_game

from houston_daemon.environments.simulation.serve import Impossible

_PARTS = ("train", "train", "dev", "test")
"""A half, a quarter and a quarter, as ScienceWorld splits its variations."""


def generate(settings: Mapping[str, Any]) -> tuple[textworld.Game, textworld.GameOptions]:
    """The first game of `seeds` (first, number of them) that is of the split; "" takes any.

    Raises Impossible.
    """
    first, count = settings["seeds"]
    known = KnowledgeBase.load()  # half of the time that a house takes
    for seed in range(first, first + count):
        options = textworld.GameOptions()
        options.seeds = seed
        try:
            game = _make(settings, options, seed, known)
        except Exception as problem:  # noqa: BLE001 - the generator raises whatever it meets
            raise Impossible(
                f"the generator refuses these settings: {type(problem).__name__}: {problem}"
            ) from None
        if settings["split"] in ("", split_of(game)):
            return game, options
    raise Impossible(
        f"none of {count} games is of the split {settings['split']}: with these settings there are"
        " too few different ones; ask for more rooms or objects"
    )


def split_of(game: textworld.Game) -> str:
    """`train`, `dev` or `test`."""
    return _PARTS[int(structure(game)[:8], 16) % len(_PARTS)]


def structure(game: textworld.Game) -> str:
    """A hash of what the game is, without its names and texts."""
    facts = sorted(str(fact) for fact in game.world.facts)
    ends = [
        sorted(str(condition) for event in quest.win_events for condition in _conditions(event))
        for quest in game.quests
    ]
    data = json.dumps([facts, ends])
    return hashlib.blake2b(data.encode(), digest_size=16).hexdigest()


def _conditions(event: Any) -> list[Any]:
    condition = getattr(event, "condition", None)
    return [condition] if condition is not None else [str(event)]


def _make(
    settings: Mapping[str, Any], options: textworld.GameOptions, seed: int, known: KnowledgeBase
) -> textworld.Game:
    kind = settings["game"]
    if kind == "treasure_hunter":
        return treasure_hunter.make({"level": settings["level"]}, options)
    if kind == "coin_collector":
        return coin_collector.make({"level": settings["level"]}, options)
    if kind == "cooking":
        skills = {
            "recipe": settings["ingredients"],
            "take": settings["ingredients"],
            "go": settings["rooms"],
            **dict.fromkeys(("open", "cook", "cut"), True),
            "split": "",
            "recipe_seed": seed,
        }
        return cooking.make(skills, options)
    options.kb = known
    options.nb_rooms, options.nb_objects = settings["rooms"], settings["objects"]
    options.quest_length = settings["quest_length"]
    options.grammar.only_last_action = settings["goal"] == "brief"
    return make_game(options)
