"""`houston train dapo` as people call it, with a real engine and a policy that learns from it."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.suites.tiny_policy import TinyRecipe, make_tiny_policy
from houston_shared.errors import HoustonError
from tests.support.station import Station

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
FAST = (
    *("--recipe", "small", "--set", "groups=6", "--set", "group_size=4", "--set", "refill=1"),
    *("--set", "precision=fp32", "--set", "device=cpu"),
)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy of few words that solves some worlds and not others."""
    folder = tmp_path_factory.mktemp("tiny")
    recipe = TinyRecipe(worlds=64)
    with contextlib.suppress(HoustonError):  # it solves fewer or more than one would begin with
        make_tiny_policy(folder, recipe, lambda line: None)
    return folder


@pytest.fixture
def trained(station: Station, policy: Path) -> Station:
    """A station whose engine `tiny` serves that policy."""
    station.home.mkdir(parents=True, exist_ok=True)
    (station.home / "houston.toml").write_text(
        f'[engines.tiny]\nkind = "embedded"\nmodel = "{policy}"\ndialect = "words"\n'
    )
    station.start()
    return station


def train(station: Station, *more: str) -> dict[str, Any]:
    words = ("train", "dapo", "--suite", "word-worlds", "--engine", "tiny", *FAST, *more)
    (told,) = (
        json.loads(line) for line in station.run(*words, "--json", timeout=280).stdout.splitlines()
    )
    return told


def test_each_update_trains_on_the_groups_of_the_version_before(trained: Station) -> None:
    told = train(trained, "--set", "updates=2", "--set", "evaluate_updates=1",
                 "--set", "evaluate_tasks=8")  # fmt: skip
    first, second = told["updates"]
    assert told["state"] == "finished"
    assert (first["policy"], second["policy"]) == ("base", "policy@2")
    assert told["policy"] == "policy@3"
    for update in (first, second):
        assert update["trained_tokens"] > 0
        assert update["sampling"]["rollouts"] == 4 * update["sampling"]["groups"]
        assert update["gap_tokens"] == update["trained_tokens"], "the engine said all of them"
        assert update["gap_largest"] < 0.1, "and nearly what the trainer computes"
        assert update["validation"]["tasks"] == 8
        assert update["sampling"]["stale"] == 0
    assert second["loss"]["entropy"] > 0
    groups = [json.loads(file.read_text()) for file in Path(told["folder"], "groups").iterdir()]
    for group in groups:
        for rollout in group["rollouts"]:
            wanted = "" if group["policy"] == "base" else group["policy"]
            assert trained.show(rollout)["policy"] == wanted
    assert trained.query("SELECT count(*) FROM rollouts") == [
        (sum(len(group["rollouts"]) for group in groups),)
    ]
    active = [row for row in trained.json("policy", "list") if row.get("active")]
    assert {row["kind"] for row in active} <= {"base"}, "at the end it has what it had before"
    assert trained.json("train", "list")[0]["policy"] == "policy@3"


@pytest.mark.parametrize(
    ("words", "code", "cause"),
    [
        (("--suite", "nonsense"), 2, "There is no suite 'nonsense'"),
        (("--engine", "script:x.jsonl"), 2, "gives no token ids"),
        (("--base", "policy@9"), 1, "There is no policy 'policy@9'"),
        (("--set", "group_size=1"), 78, "group_size"),
        (("--recipe", "nonsense"), 78, "There is no recipe nonsense"),
        (("--resume", "no/run"), 2, "--resume takes no --suite, --engine"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_a_sentence(
    trained: Station, words: tuple[str, ...], code: int, cause: str
) -> None:
    asked = ("train", "dapo", "--suite", "word-worlds", "--engine", "tiny", *words)
    said = trained.run(*asked, code=code).stderr
    assert cause in said
    unknown = trained.run("train", "dapo", "--resume", "no/run", code=2).stderr
    assert "is no training run" in unknown
    assert trained.json("train", "list") == []
