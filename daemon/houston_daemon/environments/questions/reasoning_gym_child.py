"""Makes questions of reasoning-gym and scores answers to them, as a program of its own.

    python reasoning_gym_child.py                   questions: JSON lines on stdin and stdout
    python -S reasoning_gym_child.py FOLDER…        one answer, which stands in HOUSTON_ANSWER

Some datasets depend on the order of sets, so PYTHONHASHSEED must be 0; some draw from the
generators of Python and numpy, which are seeded here. A question is `dataset`, `settings` and
`seed`; an answer has also `question` and `answer`, and stdout gets `{"score": 0…1}` or
`{"error": "…"}` in its last line. The package's own `score_answer` says what it is worth. It
evaluates some answers as Python (`eval`, and sympy's parser), and an agent wrote them: so scoring
runs in the sandbox, once for each answer; where the package only wants a list it gets
`ast.literal_eval`, and sympy gets formulas only. Imports nothing of Houston.
"""

from __future__ import annotations

import ast
import json
import os
import random
import re
import sys

TYPE_CHECKING = False  # as a type checker reads it; `typing` itself is slow to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_EVALUATING = (
    "reasoning_gym.algorithmic.binary_matrix",
    "reasoning_gym.algorithmic.spiral_matrix",
    "reasoning_gym.algorithmic.string_insertion",
    "reasoning_gym.games.n_queens",
)
"""Modules that evaluate an answer, which should be a list."""
_FORMULA = re.compile(r"[\w\s.+\-*/^(),]*")
_ARITHMETIC = re.compile(r"[\d\s+\-*/()]*", re.ASCII)
_PARSING = {
    "sympy": _FORMULA,
    "reasoning_gym.games.countdown": _ARITHMETIC,
    "reasoning_gym.games.puzzle24": _ARITHMETIC,
}
"""Modules whose `parse_expr` is given an answer, and what may stand in it. The games count whole
numbers alone: `24e0` and `E/E` would be numbers that nobody gave."""
_MEMBER = re.compile(r"\.\s*[^\W\d]")
_NAME = re.compile(r"[^\W\d]\w*")
_KNOWN_NAME = re.compile(
    r"[A-Za-z]\d*|pi|exp|log|ln|sqrt|Abs|a?(?:sin|cos|tan)h?|cot|sec|csc", re.ASCII
)


def make_entry(request: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The dataset and its one question of a seed. Raises whatever the package raises."""
    import numpy
    import reasoning_gym

    random.seed(request["seed"])
    numpy.random.seed(request["seed"])
    settings = {**request["settings"], "seed": request["seed"], "size": 1}
    dataset = reasoning_gym.create_dataset(request["dataset"], **settings)
    return dataset, dataset[0]


def score(request: dict[str, Any]) -> dict[str, Any]:
    """What an answer is worth, or why nobody can say."""
    from importlib import import_module

    for name in _EVALUATING:
        vars(import_module(name))["eval"] = ast.literal_eval
    for name, allowed in _PARSING.items():
        module = vars(import_module(name))
        module["parse_expr"] = _only_formulas(module["parse_expr"], allowed)
    dataset, entry = make_entry(request)
    if entry["question"] != request["question"]:
        return {"error": "reasoning-gym makes another question of this seed; its version differs"}
    try:
        worth = float(dataset.score_answer(request["answer"], entry))
    except Exception as problem:  # noqa: BLE001 - the package raises whatever an answer causes
        return {"score": 0.0, "problem": type(problem).__name__}
    return {"score": min(1.0, max(0.0, worth))}


def _only_formulas(parse: Callable[..., Any], allowed: re.Pattern[str]) -> Callable[..., Any]:
    """sympy's parser for numbers, operators, brackets, variables and elementary functions.

    An `Integral(…)` of what is to be integrated would be its own right answer.
    """

    def parse_formula(text: str, **settings: Any) -> Any:
        names_known = all(map(_KNOWN_NAME.fullmatch, _NAME.findall(text)))
        if not (names_known and allowed.fullmatch(text)) or _MEMBER.search(text):
            raise ValueError("no formula")
        return parse(text, **settings)

    return parse_formula


def ask(request: dict[str, Any]) -> dict[str, Any]:
    """A question with its answer; without a seed what its dataset is."""
    from reasoning_gym.factory import DATASETS

    if request["dataset"] not in DATASETS:
        return {"unknown": sorted(DATASETS)}
    if "seed" not in request:
        return {"about": DATASETS[request["dataset"]][0].__doc__ or ""}
    try:
        entry = make_entry(request)[1]
    except Exception as problem:  # noqa: BLE001 - the package raises whatever it meets
        return {"error": f"{type(problem).__name__}: {problem}"}
    return {"question": entry["question"], "answer": str(entry["answer"])}


def main() -> None:
    """Score the answer that is given, or make questions until stdin ends."""
    sys.path.extend(sys.argv[1:])
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the package prints is no answer
    if request := os.environ.get("HOUSTON_ANSWER"):
        answers.write(f"{json.dumps(score(json.loads(request)))}\n")
        return
    for line in sys.stdin:
        answers.write(f"{json.dumps(ask(json.loads(line)))}\n")


if __name__ == "__main__":
    main()
