"""Task folders in which orders can be followed: a workspace with every file and folder they name.

Files are short and hold the words that are searched for. Nothing here starts a rollout.
"""

import json
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from houston_daemon.training.experiment.orders import Order, Vocabulary

TOOLS = (
    "open_file", "list_files", "search_file", "run_command", "find_file", "search_dir",
    "think", "sleep", "finish",
)  # fmt: skip
_TASK = """
name = {name}
instructions = {instructions}
sandbox = {sandbox}
tools = {tools}

[workspace]
source = "workspace"

[budget]
steps = {steps}
minimum_steps = {steps}
active_seconds = 900
answer_tokens = {answer_tokens}
observation_tokens = 240
command_seconds = 5
sleep_seconds = 1

[sampling]
temperature = {temperature}
"""
_INSTRUCTIONS = (
    "Write an overview of the project {project}: what each of its files is for.",
    "The project {project} is handed over to you. Find out what is in it and which parts matter.",
    "Look after the folder of the project {project}; note what is old and what is still needed.",
    "Prepare the project {project} for a colleague: learn what each file holds.",
)
_LINES = (
    "The {word} of this part was looked at twice.",
    "Nobody has counted {word} yet.",
    "More about {word} stands elsewhere.",
    "Here {word} and {other} belong together.",
)


def write(
    folder: Path,
    project: str,
    words: Vocabulary,
    some: Sequence[Order],
    seed: int,
    settings: Mapping[str, Any],
) -> Path:
    """Write a task folder for `some` orders; the path of its task file.

    settings: `steps`, `answer_tokens`, `temperature`, `sandbox`.
    """
    source = random.Random(f"{seed}:{project}")
    workspace = folder / "workspace"
    for path in sorted(_files(words, some, source)):
        file = workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_text(words, some, path, source), encoding="utf-8")
    fields = {
        "name": project,
        "instructions": source.choice(_INSTRUCTIONS).format(project=project),
        "tools": list(TOOLS),
        **settings,
    }
    text = _TASK.format(**{key: json.dumps(value) for key, value in fields.items()})
    task = folder / "task.toml"
    task.write_text(text, encoding="utf-8")
    return task


def _files(words: Vocabulary, some: Sequence[Order], source: random.Random) -> set[str]:
    """Every file that an order names; folders that it names have a file or two."""
    found: set[str] = set()
    for order in some:
        for part in re.split(
            r"[\s,:?]+", f"{order.text} {' '.join(map(str, order.arguments.values()))}"
        ):
            name = part.rstrip(".")
            if name.rpartition("/")[2] in words.names:
                found.add(name)
            elif name in words.folders:
                found |= {f"{name}/{each}" for each in source.sample(words.names, 2)}
    return found | set(source.sample(words.names, 3))


def _text(words: Vocabulary, some: Sequence[Order], path: str, source: random.Random) -> str:
    """Three lines, and one for each word that an order looks for here."""
    wanted = [
        str(order.arguments["search_term"])
        for order in some
        if order.arguments.get("file_path") == path
        or path.startswith(f"{order.arguments.get('dir_path')}/")
    ]
    drawn = [*source.sample(words.words, 3), *wanted]
    return "".join(
        source.choice(_LINES).format(word=word, other=source.choice(words.words)) + "\n"
        for word in drawn
    )
