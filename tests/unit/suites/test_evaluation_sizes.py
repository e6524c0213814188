"""How many tasks `houston evaluate` and `suite run` play, where somebody says so and where not."""

import argparse
import json
from pathlib import Path

import pytest

from houston_daemon.commands import evaluate_commands, suite_commands
from houston_shared.config import load_configuration
from tests.support.written_home import WrittenHome


@pytest.mark.parametrize(
    ("words", "tasks"),
    [
        (("word-worlds",), 200),
        (("word-worlds", "-n", "300"), 300),
        (("science-games", "--split", "train"), 200),
        (("science-games", "--split", "train", "-n", "300"), 274),
        (("science-games",), 139),
        (("science-games", "-n", "5"), 5),
        (("questions.jsonl",), 250),
        (("questions.jsonl", "-n", "5"), 5),
        (("questions.jsonl", "-n", "300"), 250),
    ],
)
def test_of_a_suite_200_are_played_and_of_a_file_all_unless_told_otherwise(
    words: tuple[str, ...], tasks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [
        json.dumps({"question": f"What is {n} + 1?", "answer": f"{n + 1}"}) for n in range(250)
    ]
    Path("questions.jsonl").write_text("\n".join(lines))
    parser = argparse.ArgumentParser()
    evaluate_commands.add_evaluate_arguments(parser)
    arguments = parser.parse_args(list(words))
    WrittenHome(tmp_path).close()
    loaded = load_configuration(str(tmp_path), None)
    source, _, _ = evaluate_commands._tasks(arguments, loaded)
    assert evaluate_commands._order(arguments, loaded, source, "").worlds == tasks


@pytest.mark.parametrize(
    ("words", "tasks"),
    [
        (("word-worlds",), 200),
        (("science-games",), 139),
        (("science-games", "--split", "train", "-n", "300"), 274),
    ],
)
def test_a_run_of_a_suite_plays_as_many(words: tuple[str, ...], tasks: int) -> None:
    parser = argparse.ArgumentParser()
    suite_commands.add_suite_run_arguments(parser)
    assert suite_commands._order(parser.parse_args(list(words)), "tiny").worlds == tasks
