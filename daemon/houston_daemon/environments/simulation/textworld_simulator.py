"""TextWorld as a program: makes the game once, plays it. Run in a child process."""

import hashlib
import json
import os
import re
import resource
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import textworld
from textworld.challenges import coin_collector, cooking, treasure_hunter
from textworld.generator import KnowledgeBase, compile_game, make_game

from houston_daemon.environments.simulation.simulator_protocol import (
    Impossible,
    Opened,
    Outcome,
    Seen,
    serve,
)

_PARTS = ("train", "train", "dev", "test")
"""A half, a quarter and a quarter, as ScienceWorld splits its variations."""


def generate(settings: Mapping[str, Any]) -> tuple[textworld.Game, textworld.GameOptions]:
    """The first game of `seeds` (first, number of them) that is of the split; "" takes any.

    Raises Impossible.
    """
    first, count = settings["seeds"]
    knowledge = KnowledgeBase.load()  # half of the time that a house takes
    for seed in range(first, first + count):
        options = textworld.GameOptions()
        options.seeds = seed
        try:
            game = _generate_game(settings, options, seed, knowledge)
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
    return _PARTS[int(game_hash(game)[:8], 16) % len(_PARTS)]


def game_hash(game: textworld.Game) -> str:
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


def _generate_game(
    settings: Mapping[str, Any], options: textworld.GameOptions, seed: int, knowledge: KnowledgeBase
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
    options.kb = knowledge
    options.nb_rooms, options.nb_objects = settings["rooms"], settings["objects"]
    options.quest_length = settings["quest_length"]
    options.grammar.only_last_action = settings["goal"] == "brief"
    return make_game(options)


_MEMORY = 4 << 30
"""Most address space, bytes."""
_PROMPT = re.compile(r"\n>[^\n]*\Z")
_AFTER_END = re.compile(r"\s*Would you like to RESTART.*\Z", re.DOTALL)
_SPACE = re.compile(r"\n{3,}")
_INFOS = ("objective", "description", "inventory", "admissible_commands", "score", "max_score",
          "won", "lost", "moves")  # fmt: skip


class TextWorldGame:
    """One game. See `simulator_protocol.World`."""

    def __init__(self, settings: dict[str, Any]) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        folder = Path(settings["folder"])
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "game.z8"
        if not (folder / "made").is_file():
            _compile_game(settings, file)
            (folder / "made").touch()
        self._game = textworld.start(str(file), textworld.EnvInfos(**dict.fromkeys(_INFOS, True)))
        self._state = self._game.reset()

    def opened(self) -> Opened:
        """Objective and first room."""
        return Opened(_plain(self._state.objective), _plain(self._state.description))

    def do(self, action: str) -> Seen:
        """One turn; the score is the share of the game's points."""
        state, _, over = self._game.step(action)
        self._state = state
        outcome: Outcome = "won" if state.won else "lost" if state.lost or over else ""
        points = 100.0 * state.score / state.max_score if state.max_score else 0.0
        score = 100.0 if state.won else round(min(100.0, max(0.0, points)), 4)
        return Seen(_plain(state.feedback), score, outcome, state.moves)

    def show(self, aspect: str) -> list[str]:
        """The room, what is carried, or the admissible commands."""
        if aspect == "actions":
            return sorted(self._state.admissible_commands)
        return [_plain(self._state.inventory if aspect == "inventory" else self._state.description)]


def _compile_game(settings: dict[str, Any], file: Path) -> None:
    """Generate and compile; Inform 7 writes into its user's home, and the generator into /tmp."""
    with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
        tempfile.tempdir = os.environ["HOME"] = scratch
        game, options = generate(settings)
        options.path, options.force_recompile = str(file), True
        compile_game(game, options)
    tempfile.tempdir = None


def _plain(text: str) -> str:
    """A text without prompt and status line, and without the interpreter's own question."""
    text = _AFTER_END.sub("", _PROMPT.sub("", text))
    return _SPACE.sub("\n\n", "\n".join(line.rstrip() for line in text.splitlines())).strip()


if __name__ == "__main__":
    serve(TextWorldGame)
