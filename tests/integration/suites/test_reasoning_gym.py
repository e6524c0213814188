"""Suites of reasoning-gym: the package's questions, scored by the package in the sandbox."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.environments.questions import reasoning_gym_child
from houston_daemon.suites.suite_catalog import SPLITS, find_suite, write_suite_task
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.task import load_task
from tests.support.station import Station

SCORE = "SELECT best_score, steps FROM rollouts WHERE id = ?"
DATASETS = ("chain_sum", "polynomial_multiplication", "ransom_note", "emoji_mystery", "codeio")
"""One plain; two whose texts depend on the order of sets; characters beyond 16 bits; programs that
draw from numpy."""


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    made = Station(tmp_path_factory.mktemp("gym"))
    made.start()
    yield made
    made.clear()


def answered(station: Station, suite: str, answer: str, index: int = 0) -> list[Any]:
    """Score and steps of a rollout that gives this answer."""
    task = write_suite_task(f"reasoning-gym:{suite}", "test", index, station.folder / "tasks")
    step = {"thought": "", "calls": [{"name": "finish", "arguments": {"answer": answer}}]}
    (rollout,) = station.rollout(task, station.script([step], f"{suite}-{len(answer)}"))
    assert station.ended(rollout)["state"] == "finished", station.log()
    return list(station.query(SCORE, rollout)[0])


@pytest.mark.parametrize("dataset", DATASETS)
def test_a_task_is_the_same_in_every_process_and_fits_its_file(
    tmp_path: Path, dataset: str
) -> None:
    name = f"reasoning-gym:{dataset}"
    write = (
        "import sys; from pathlib import Path;"
        "from houston_daemon.suites.suite_catalog import write_suite_task;"
        "[write_suite_task(sys.argv[1], 'validation', n, Path(sys.argv[2])) for n in (7, 99_999)]"
    )
    texts = []
    for number in ("1", "2"):
        folder = tmp_path / number
        words = [sys.executable, "-c", write, name, str(folder)]
        environment = {**os.environ, "PYTHONHASHSEED": number}
        subprocess.run(words, env=environment, check=True, timeout=240)
        texts.append([file.read_text() for file in sorted(folder.glob("*/task.toml"))])
    assert texts[0] == texts[1]
    assert len(set(texts[0])) == 2, "another index, another question"
    task = load_task(write_suite_task(name, "validation", 99_999, tmp_path / "1"))
    assert task.task.name.endswith("-1-validation-99999") and task.instructions.strip()


def test_splits_have_seeds_of_their_own(tmp_path: Path) -> None:
    files = [write_suite_task("reasoning-gym:chain_sum", split, 3, tmp_path) for split in SPLITS]
    tasks = [load_task(file) for file in files]
    assert len({task.task.reasoning_gym.seed for task in tasks}) == 3
    assert len({task.instructions for task in tasks}) == 3


def test_answers_are_scored_as_the_package_does(station: Station) -> None:
    solve = find_suite("reasoning-gym:chain_sum").solve
    assert solve is not None
    right: Any = solve("test", 0)[0]["arguments"]
    assert answered(station, "chain_sum", right["answer"]) == [100.0, 1]
    part, _ = answered(station, "chain_sum", f"The answer is {right['answer']}.")
    assert 0 < part < 50, "its own rule: the share of the answer that is right"
    assert answered(station, "chain_sum", "none") == [0.0, 1]


def test_an_answer_is_not_run_as_code(station: Station, tmp_path: Path) -> None:
    """The package evaluates an answer to spiral_matrix."""
    trace = tmp_path / "ran"
    code = f"[open({str(trace)!r}, 'w').write('x'), 1][1:]"
    assert answered(station, "spiral_matrix", code) == [0.0, 1]
    assert not trace.exists()
    solve = find_suite("reasoning-gym:spiral_matrix").solve
    assert solve is not None
    right: Any = solve("test", 0)[0]["arguments"]
    as_list = json.dumps([int(number) for number in right["answer"].split()])
    assert answered(station, "spiral_matrix", as_list)[0] > 0, "a list is still understood"


def in_the_program(folder: Path, asked: dict[str, Any]) -> Any:
    """What the program that makes questions and scores answers says, without a sandbox."""
    ended = subprocess.run(
        [sys.executable, "-P", reasoning_gym_child.__file__],
        input=json.dumps(asked), cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONHASHSEED": "0",
             "HOUSTON_ANSWER": json.dumps(asked) if "answer" in asked else ""},
    )  # fmt: skip
    return json.loads(ended.stdout)


@pytest.mark.parametrize(
    "dataset",
    [
        "n_queens",
        "countdown",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (
                "puzzle24",
                "polynomial_multiplication",
                "simple_integration",
                "intermediate_integration",
            )
        ),
    ],
)
def test_an_answer_cannot_score_itself(tmp_path: Path, dataset: str) -> None:
    """The package evaluates these, too, in the process that says what they are worth."""
    asked = {"dataset": dataset, "settings": {}, "seed": 1}
    made = in_the_program(tmp_path, asked)
    asked["question"] = made["question"]
    words = "[__import__('os').write(3, b'{\"score\": 1.0}\\n'), __import__('os')._exit(0)]"
    assert in_the_program(tmp_path, {**asked, "answer": words})["score"] < 0.1
    right = in_the_program(tmp_path, {**asked, "answer": made["answer"]})
    assert right == {"score": 1.0}, "a formula, or a board, is still understood"


@pytest.mark.parametrize("dataset", ["countdown", pytest.param("puzzle24", marks=pytest.mark.slow)])
def test_a_game_with_numbers_is_won_with_those_alone(tmp_path: Path, dataset: str) -> None:
    asked = {"dataset": dataset, "settings": {}, "seed": 3}
    made = in_the_program(tmp_path, asked)
    asked["question"] = made["question"]
    given = re.findall(r"\d+", made["answer"])
    target = 24 if dataset == "puzzle24" else eval(made["answer"])  # noqa: S307 - not an agent's
    nothing = f"({'+'.join(given)})*sin(pi)"
    for answer in (f"{target}e0+{nothing}", nothing + "+E/E" * int(target), f"{target}e0+1-1+1-1"):
        assert in_the_program(tmp_path, {**asked, "answer": answer})["score"] < 0.1, answer
    assert in_the_program(tmp_path, {**asked, "answer": made["answer"]}) == {"score": 1.0}


def test_a_suite_is_run(station: Station) -> None:
    engine = station.script(
        [{"thought": "", "calls": [{"name": "finish", "arguments": {"answer": "none"}}]}], "none"
    )
    words = ("suite", "run", "reasoning-gym:chain_sum", "-n", "2", "--engine", engine)
    (figures,) = station.json(*words, "--name", "one")
    assert figures["worlds"] == 2 and figures["unfinished"] == 0
    assert figures["pass@1"]["value"] == 0.0


@pytest.mark.parametrize(
    "name, words",
    [
        pytest.param("reasoning-gym:nope", "no dataset 'nope'; it has: ab, acre", id="no-dataset"),
        pytest.param("nope", "word-worlds, .*reasoning-gym:DATASET", id="no-suite"),
    ],
)
def test_a_name_that_is_none_is_refused(name: str, words: str) -> None:
    with pytest.raises(HoustonError, match=words):
        find_suite(name)


def test_a_dataset_without_its_parts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HoustonError, match="makes no question of composite"):
        write_suite_task("reasoning-gym:composite", "train", 0, tmp_path)


def test_without_the_package_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="needs the Python package reasoning-gym"):
        find_suite("reasoning-gym:gcd")
