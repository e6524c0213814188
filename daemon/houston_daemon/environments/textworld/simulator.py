"""TextWorld as a program: makes the game once, plays it. Run in a child process.

The compiled game stays in the rollout's folder: a world that is made again is that file, whatever
generator is installed by then.
"""

import os
import re
import resource
import tempfile
from pathlib import Path
from typing import Any

import textworld
from textworld.generator import compile_game

from houston_daemon.environments.simulation.messages import Opened, Outcome, Seen
from houston_daemon.environments.simulation.serve import serve
from houston_daemon.environments.textworld.generation import generate

_MEMORY = 4 << 30
"""Most address space, bytes."""
_PROMPT = re.compile(r"\n>[^\n]*\Z")
_AFTER_END = re.compile(r"\s*Would you like to RESTART.*\Z", re.DOTALL)
_SPACE = re.compile(r"\n{3,}")
_INFOS = ("objective", "description", "inventory", "admissible_commands", "score", "max_score",
          "won", "lost", "moves")  # fmt: skip


class TextWorldGame:
    """One game. See `serve.World`."""

    def __init__(self, settings: dict[str, Any]) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        folder = Path(settings["folder"])
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "game.z8"
        if not (folder / "made").is_file():
            _make(settings, file)
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

    def show(self, what: str) -> list[str]:
        """The room, what is carried, or the admissible commands."""
        if what == "actions":
            return sorted(self._state.admissible_commands)
        return [_plain(self._state.inventory if what == "inventory" else self._state.description)]


def _make(settings: dict[str, Any], file: Path) -> None:
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
