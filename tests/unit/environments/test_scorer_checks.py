"""A set that its scorer cannot score is refused before a rollout starts."""

import json
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.service.rollout_start_checks import check_task_names
from houston_shared.errors import ConfigurationError
from houston_shared.task import load_task

TESTS = {"cases": [{"input": "1", "output": "1"}]}


def written(folder: Path, environment: str, scorer: str, question: Any, more: str = "") -> Path:
    (folder / "questions.jsonl").write_text(json.dumps({"question": "Which?", **question}))
    (folder / "task.toml").write_text(
        f'name = "t"\ninstructions = "Answer."\nenvironment = "{environment}"\n{more}\n'
        f'[questions]\nfile = "questions.jsonl"\nsplit = "all"\nscorer = "{scorer}"\n'
    )
    return folder


@pytest.mark.parametrize(
    ("environment", "scorer", "question"),
    [
        ("research", "text", {"answers": ["x"]}),
        ("research", "math", {"answers": ["x"]}),
        ("research", "choice", {"answers": ["B", "x"]}),
        ("research", "tests", {"tests": TESTS}),
        ("python", "math", {"answers": ["x"]}),
        ("python", "choice", {"answers": ["B"]}),
    ],
)
def test_a_set_that_fits_its_scorer_is_taken(
    tmp_path: Path, environment: str, scorer: str, question: dict[str, Any]
) -> None:
    check_task_names(load_task(written(tmp_path, environment, scorer, question)))


@pytest.mark.parametrize(
    ("environment", "scorer", "question", "more", "cause"),
    [
        ("research", "tests", {"answers": ["x"]}, "", "has no `tests`"),
        ("research", "math", {"tests": TESTS}, "", "has no `answers`"),
        ("research", "choice", {"answers": ["x", "B"]}, "", "a letter from A to J"),
        ("research", "choice", {"answers": [""]}, "", "must be a list of one or more texts"),
        ("research", "tests", {"tests": TESTS}, 'sandbox = "none"', "could read the hidden tests"),
        ("python", "tests", {"tests": TESTS}, "", "which python cannot run"),
    ],
)
def test_a_set_that_does_not_is_refused(
    tmp_path: Path, environment: str, scorer: str, question: dict[str, Any], more: str, cause: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_task_names(load_task(written(tmp_path, environment, scorer, question, more)))
    assert cause in refused.value.cause


def test_mathematics_without_its_package_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError) as refused:
        check_task_names(load_task(written(tmp_path, "research", "math", {"answers": ["x"]})))
    assert "math-verify is not installed" in refused.value.cause
    assert refused.value.next == "pip install 'houston-agents[evaluate]'"
