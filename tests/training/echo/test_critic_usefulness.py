"""`houston train usefulness`: what critiques gained by thirds of a run, all and near the full
score, from runs that were written by hand."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from houston_daemon.training.rl.rl_recipe import RlRecipe
from houston_daemon.training.rl.rl_run_folder import RlRunFolder, RlRunSpec
from houston_daemon.training.rl.rollout_groups import GroupFolder, RolloutGroup
from houston_shared.command import main
from houston_shared.errors import ExitCode
from houston_shared.home import Home
from houston_shared.policy_and_run_files import training_folder
from tests.support.written_home import WrittenHome
from tests.unit.shared.test_training_figures import critic, update

LN = math.log
Attempts = Mapping[int, Sequence[tuple[float | None, Sequence[float | str]]]]
"""By update its attempts: the score, and of each refinement the score, or the state of one that
did not come to its end."""


def write_run(home: WrittenHome, run: str, attempts: Attempts, updates: int, **recipe: Any) -> None:
    """A run's folder and its rollouts. updates: how many were trained."""
    folder = RlRunFolder(training_folder(home.home) / run)
    folder.write_spec(
        RlRunSpec(run=run, name="word", parent="", home=str(home.home.path), base_hash="",
                  active_before="", recipe=RlRecipe(suite="word-errands", **recipe))
    )  # fmt: skip
    with_critic = recipe["critic"] != "none"
    for number in range(updates):
        folder.keep_update(update(number, 0.5, **({"critic": critic(0.0)} if with_critic else {})))
    groups = GroupFolder(folder.path / "groups")
    for number, tried in attempts.items():
        for index, (score, refined) in enumerate(tried):
            name = f"{run}-{number}-{index}"
            home.rollout(name, state="finished", last_score=score)
            group = RolloutGroup(
                update=number, batch=0, split="train", index=index, policy="base", rollouts=(name,)
            )
            groups.keep(group)
            told = []
            for place, came in enumerate(refined):
                state, after = ("finished", came) if isinstance(came, float) else (came, 100.0)
                told.append(home.rollout(f"{name}-r{place}", state=state, last_score=after))
            if told:
                groups.keep(
                    RolloutGroup(update=number, batch=0, split="train", index=index, policy="base",
                                 rollouts=tuple(told), refines=name)
                )  # fmt: skip


class Scenario(NamedTuple):
    """The late third of a run of three updates, and what is told of it."""

    attempts: Sequence[tuple[float | None, Sequence[float | str]]]
    told: dict[str, Any]
    near: dict[str, Any]


NOBODY = {"attempts": 0, "critiques": 0, "gain": None, "to_full": None}


@pytest.mark.parametrize(
    ("attempts", "told", "near"),
    [
        pytest.param(*Scenario(
            [(50.0, [100.0, 50.0, 0.0, 50.0])],
            {"attempts": 1, "critiques": 4, "gain": (LN(0.6 / 0.1) + LN(0.6 / 1.1)) / 4,
             "raised": 0.25, "lowered": 0.25},
            {"attempts": 1, "critiques": 4, "gain": (LN(0.6 / 0.1) + LN(0.6 / 1.1)) / 4,
             "to_full": 0.25},
        ), id="half the score is near"),
        pytest.param(*Scenario(
            [(49.0, [100.0]), (99.0, [99.0, 100.0])],
            {"attempts": 2, "critiques": 3, "gain": (LN(0.61 / 0.1) + LN(0.11 / 0.1)) / 3,
             "raised": 0.6667, "lowered": 0.0},
            {"attempts": 1, "critiques": 2, "gain": LN(0.11 / 0.1) / 2, "to_full": 0.5},
        ), id="less is not"),
        pytest.param(*Scenario(
            [(50.0, [100.0, 100.0]), (75.0, [75.0] * 8)],
            {"attempts": 2, "critiques": 10, "gain": 2 * LN(0.6 / 0.1) / 10, "raised": 0.2,
             "lowered": 0.0},
            {"attempts": 2, "critiques": 10, "gain": 2 * LN(0.6 / 0.1) / 10, "to_full": 0.5},
        ), id="an attempt counts once, however many critiques it had"),
        pytest.param(*Scenario(
            [(50.0, ["failed", 50.0, "running"])],
            {"attempts": 1, "critiques": 1, "gain": 0.0, "raised": 0.0, "lowered": 0.0},
            {"attempts": 1, "critiques": 1, "gain": 0.0, "to_full": 0.0},
        ), id="a refinement that did not end counts for nothing"),
        pytest.param(*Scenario(
            [(None, [0.0]), (-100.0, [0.0])],
            {"attempts": 2, "critiques": 2, "gain": 0.0, "raised": 0.0, "lowered": 0.0},
            NOBODY,
        ), id="no score and one below 0 are 0"),
        pytest.param(*Scenario(
            [(100.0, []), (50.0, [])],
            {"attempts": 0, "critiques": 0, "gain": None, "raised": None, "lowered": None},
            NOBODY,
        ), id="nothing was criticised"),
    ],
)  # fmt: skip
def test_the_last_third_of_a_run(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    attempts: Any,
    told: dict[str, Any],
    near: dict[str, Any],
) -> None:
    home = WrittenHome(tmp_path)
    write_run(home, "echo-a", {0: [(0.0, [100.0])], 2: attempts}, 3, critic="trained")
    home.close()
    phases = figures(tmp_path, capsys, "echo-a")["shown"][0]["phases"]
    late = phases["late"]
    found = late.pop("near_full_score")
    share = found.pop("to_full")
    assert late == pytest.approx(told, abs=1e-4)
    assert found == pytest.approx({k: near[k] for k in found}, abs=1e-4)
    assert (share and share["value"]) == near["to_full"]
    assert phases["early"]["raised"] == 1.0 and phases["intermediate"]["attempts"] == 0


def figures(home: Path, capsys: pytest.CaptureFixture[str], *runs: str) -> dict[str, Any]:
    assert main(["--home", str(home), "train", "usefulness", *runs, "--json"]) == ExitCode.DONE
    return dict(json.loads(capsys.readouterr().out))


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """Two runs with a trained critic, one each with the linear gain, frozen, and without any; of
    the first a fourth update that was begun and not trained."""
    home = WrittenHome(tmp_path)
    best, none = (50.0, [100.0, 50.0]), (50.0, [0.0, 50.0])
    write_run(home, "echo-a", {2: [best], 3: [none, none]}, 3, critic="trained")
    write_run(home, "echo-b", {2: [none]}, 3, critic="trained")
    write_run(home, "echo-c", {2: [best]}, 3, critic="trained", gain="linear")
    write_run(home, "echo-d", {2: [none]}, 3, critic="frozen")
    write_run(home, "grpo-e", {}, 3, critic="none")
    home.close()
    return tmp_path


def test_runs_of_one_kind_are_told_together_too(
    several: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """However a run is named, and however often."""
    named = ("echo-a", "echo-d", "o-b", "echo-c", "echo-a", "o-a")
    shown = figures(several, capsys, *named)["shown"]
    late = [
        (
            part["runs"],
            part["critic"],
            part["phases"]["late"]["near_full_score"]["to_full"]["value"],
        )
        for part in shown
    ]
    assert late == [
        (["echo-a"], "trained", 0.5),
        (["echo-b"], "trained", 0.0),
        (["echo-a", "echo-b"], "trained", 0.25),
        (["echo-d"], "frozen", 0.0),
        (["echo-c"], "trained, linear gain", 0.5),
    ]


def test_a_share_has_an_interval_over_attempts(
    several: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone, _, both = (
        part["phases"]["late"]["near_full_score"]["to_full"]
        for part in figures(several, capsys, "echo-a", "echo-b")["shown"]
    )
    assert alone == {"value": 0.5, "low": 0.5, "high": 0.5}, "one attempt says nothing of others"
    assert both == {"value": 0.25, "low": 0.0, "high": 0.5}


def test_people_see_a_table(several: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--home", str(several), "train", "usefulness", "echo-a", "echo-b"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "echo-a, critic trained" in lines and "these 2 together, critic trained" in lines
    assert lines[-1].split() == [
        "late", "2", "+0.30", "25%", "25%", "2", "+0.30", "25.0%", "[0,", "50]",
    ]  # fmt: skip
    assert lines[-2].split() == ["intermediate", "0", "0", "none"]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("run", "code", "cause"),
    [
        pytest.param("grpo-e", ExitCode.USAGE, "trained no update with a critic", id="GRPO"),
        pytest.param("none", ExitCode.NOT_FOUND, "no training run 'none'", id="no such run"),
        pytest.param("../x", ExitCode.NOT_FOUND, "no training run '../x'", id="no name"),
    ],
)
def test_a_run_that_has_no_critic_is_refused(
    several: Path, capsys: pytest.CaptureFixture[str], run: str, code: ExitCode, cause: str
) -> None:
    assert main(["--home", str(several), "train", "usefulness", "echo-a", run]) == code
    assert cause in capsys.readouterr().err


def test_a_run_is_only_read(several: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = training_folder(Home(several)) / "echo-a"
    before = {file: file.stat().st_mtime_ns for file in folder.rglob("*")}
    figures(several, capsys, "echo-a")
    assert {file: file.stat().st_mtime_ns for file in folder.rglob("*")} == before
