"""`houston train drift`: how a run's failures changed, and whether its critic kept up."""

import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from houston_daemon.commands.train_drift_commands import drift_lines
from houston_daemon.experiments.experiment_statistics import bootstrap_mean
from houston_daemon.suites.suite_results import SuiteAttempt, SuiteRun, SuiteWorld
from houston_daemon.training.echo import critique_trials, failure_drift, sampled_critiques
from houston_daemon.training.echo.critic_usefulness import PHASES
from houston_daemon.training.echo.critique_trials import mean_gains
from houston_daemon.training.echo.drift_pictures import draw_drift
from houston_daemon.training.echo.failure_drift import (
    Diagnosis,
    DriftOrder,
    choose_checkpoints,
    drift_figures,
    energy_test,
    measure_drift,
)
from houston_daemon.training.echo.sampled_critiques import (
    CriticisedAttempt,
    CritiqueSampler,
    SampledCritique,
)
from houston_daemon.training.rl.rl_recipe import RlRecipe
from houston_daemon.training.rl.rl_run_folder import RlRunFolder, RlRunSpec
from houston_daemon.training.rl.rollout_groups import GroupFolder, RolloutGroup
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.errors import HoustonError
from tests.support.station import Station
from tests.support.written_home import WrittenHome
from tests.training.echo.test_echo_run import WORDS, model, trained

__all__ = ["model", "trained"]  # fixtures

COLOURS = ("red", "green", "blue")


class KeptRun(RlRunFolder):
    """A run's folder of which only groups and updates are read."""

    @property
    def updates(self) -> list[Any]:
        raw = json.loads((self.path / "updates.json").read_text())
        return [msgspec.convert(each, Update) for each in raw]


class Critic(msgspec.Struct):
    policy: str


class Update(msgspec.Struct):
    update: int
    critic: Critic | None = None


def kept_run(folder: Path, updates: int, critic: bool = True) -> KeptRun:
    groups = GroupFolder(folder / "groups")
    for update in range(updates):
        policy = f"word@{update + 1}" if update else "base"
        groups.keep(RolloutGroup(update=update, batch=0, split="train", index=0, policy=policy))
        held_out = RolloutGroup(update=update, batch=0, split="validation", index=0, policy="other")
        groups.keep(held_out)
    said = [
        {"update": update, **({"critic": {"policy": f"critic@{update}"}} if critic else {})}
        for update in range(updates)
    ]
    (folder / "updates.json").write_text(json.dumps(said))
    return KeptRun(folder)


def test_three_neighbours_are_taken_from_the_middle_of_each_third(tmp_path: Path) -> None:
    chosen = choose_checkpoints(kept_run(tmp_path, 24))
    assert [(each.phase, each.update) for each in chosen] == [
        ("early", 2), ("early", 3), ("early", 4),
        ("intermediate", 10), ("intermediate", 11), ("intermediate", 12),
        ("late", 18), ("late", 19), ("late", 20),
    ]  # fmt: skip
    assert (chosen[0].policy, chosen[0].critic) == ("word@3", "critic@2")


@pytest.mark.parametrize(
    ("updates", "critic", "cause"),
    [
        pytest.param(8, True, "8 updates with a critic, and 9 are needed", id="short"),
        pytest.param(12, False, "0 updates with a critic", id="GRPO"),
    ],
)
def test_a_run_that_has_no_phases_is_refused(
    tmp_path: Path, updates: int, critic: bool, cause: str
) -> None:
    with pytest.raises(HoustonError, match=cause):
        choose_checkpoints(kept_run(tmp_path, updates, critic))


def test_the_same_failures_are_not_called_a_drift() -> None:
    source = random.Random(3)
    first, second = ([source.choice(COLOURS) for _ in range(60)] for _ in range(2))
    assert energy_test(first, second)[1] > 0.05


def test_other_failures_are_a_drift() -> None:
    distance, p = energy_test(["open the red box"] * 20, ["enter the code again"] * 20)
    assert distance > 0.1 and p < 0.01


def test_phases_are_compared_by_pairs_and_counted() -> None:
    said = [Diagnosis("early", "p@2", f"a{n}", "coin red") for n in range(5)]
    said += [Diagnosis("late", "p@9", f"b{n}", "key blue") for n in range(4)]
    figures = drift_figures(said)
    assert list(figures["distances"]) == ["early to late"]
    assert figures["diagnoses"] == {"early": 5, "intermediate": 0, "late": 4}
    assert figures["most said"]["late"] == [("key blue", 4)]


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(["coin red"] * 12, id="always the same"),
        pytest.param([r"pay $\frac$ or $5"] * 6, id="signs of formulas"),
        pytest.param(["coin red", "coin blue", "key red"] * 4, id="too few for t-SNE"),
        pytest.param([f"{what} {colour} {n}" for what in ("coin", "key") for colour in COLOURS
                      for n in range(4)], id="many"),
        pytest.param(["You should read the whole log before you train again. " * 4] * 3,
                     id="too long to be written beside its dot"),
    ],
)  # fmt: skip
def test_whatever_was_said_is_drawn(tmp_path: Path, texts: list[str]) -> None:
    said = [
        {"phase": PHASES[number % 2], "text": text} for number, text in enumerate(texts)
    ]  # nothing of the third phase
    draw_drift(said, "a run", tmp_path / "drift.png")
    assert (tmp_path / "drift.png").read_bytes().startswith(b"\x89PNG")


def test_an_attempt_of_which_nothing_was_said_gained_nothing() -> None:
    attempts = [
        CriticisedAttempt(
            rollout=name,
            score=0.5,
            critic="base",
            prompt=[],
            level=0,
            critiques=tuple(SampledCritique([], None, text) for text in texts),
            cached_tokens=0,
        )
        for name, texts in {"a": ("coin red", "coin blue"), "b": ("",)}.items()
    ]
    gains = mean_gains(attempts, {"a": [0.5, 0.5], "b": []})
    assert gains == {"a": 0.0, "b": 0.0}
    assert mean_gains(attempts, {"a": [], "b": []}) == {"b": 0.0}, "none came to its end"


def test_a_refinement_that_did_not_come_to_its_end_is_no_word_on_its_critique(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = WrittenHome(tmp_path)
    states = {"r0": "finished", "r1": "failed", "r2": "cancelled"}
    for name, state in states.items():
        home.rollout(name, state=state, last_score=50.0)
    said = tuple(SampledCritique([], None, f"coin {name}") for name in states)
    attempt = CriticisedAttempt(
        rollout="a", score=0.5, critic="base", prompt=[], level=0, critiques=said, cached_tokens=0
    )
    monkeypatch.setattr(critique_trials, "refinement_specs", lambda *_: iter(()))
    monkeypatch.setattr(critique_trials, "_start", lambda *_: tuple(states))
    loaded = LoadedConfiguration(Configuration(), home.home, "defaults")
    assert critique_trials.try_critiques(loaded, "trial", [attempt]) == {"a": [0.5]}


class Told(NamedTuple):
    """What a critic gained on the attempts of the late phase, and what a person reads of it."""

    attempts: int
    gains: dict[str, float]
    line: str


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(Told(2, {"a": 0.5, "b": 0.5}, "base gains +0.500 [+0.500, +0.500], score with"
                          " it 0.70"), id="gains"),
        pytest.param(Told(0, {}, "no failed attempt to criticise"), id="nothing failed"),
        pytest.param(Told(2, {}, "base has an unknown gain: no refinement has ended"),
                     id="no refinement ended"),
    ],
)  # fmt: skip
def test_what_critics_gained_is_told_to_people_and_as_json(told: Told) -> None:
    cells = {name: {0: gain} for name, gain in told.gains.items()}
    first = {"critic": "base", "gain": bootstrap_mean(cells, 1).as_json(), "score with it": 0.7}
    critics = {"late": {"policy": "word@9", "attempts": told.attempts, "first": first}}
    measured = {"worlds": 10, "checkpoints": [], "drift": drift_figures([]), "critics": critics}
    assert drift_lines(measured) == [f"late: {told.line}"]
    json.dumps(measured, allow_nan=False)


class ScriptedRun(KeptRun):
    """A run whose recipe is given."""

    spec = RlRunSpec(
        run="echo-1", name="word", parent="", home="", base_hash="", active_before="",
        recipe=RlRecipe(suite="word-worlds", engine="tiny", critic="frozen", critic_policy="c@2"),
    )  # fmt: skip


class Asked(NamedTuple):
    """How drift is measured once more after it was with `critic@5` of `judge`, one critique."""

    engine: str
    critic: str
    critiques: int
    diagnosed: bool
    """Whether the critic of the diagnoses is asked again."""
    refined: bool
    """Whether the run's critic is asked again for what is refined."""


ASKED: dict[str, Asked] = {
    "the same": Asked("judge", "critic@5", 1, False, False),
    "another critic": Asked("judge", "critic@6", 1, True, False),
    "another engine": Asked("other", "critic@5", 1, True, False),
    "more critiques": Asked("judge", "critic@5", 3, False, True),
}


@pytest.mark.parametrize("scenario", ASKED)
def test_who_was_not_asked_yet_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: str
) -> None:
    asked: list[tuple[str, int]] = []

    def sampled(self: Any, attempts: Any, policy: Any, critic: str) -> list[CriticisedAttempt]:
        asked.append((critic, self._recipe.group_size))
        said = (SampledCritique([], None, "more", reason=f"{critic} says so"),)
        return [
            CriticisedAttempt(rollout=attempt, score=0.5, critic=critic, prompt=[], level=0,
                              critiques=said * self._recipe.group_size, cached_tokens=0)
            for attempt in attempts
        ]  # fmt: skip

    def held_out(order: DriftOrder, checkpoint: Any) -> SuiteRun:
        attempt = SuiteAttempt(
            rollout=f"r{checkpoint.update}", state="finished", score=50.0, steps=3, failures=0,
            no_action=0,
        )  # fmt: skip
        world = SuiteWorld(index=0, attempts=(attempt,))
        return SuiteRun(
            suite="word-worlds", version=1, split="test", engine="tiny",
            policy=checkpoint.policy, started_at="", seconds=1.0, worlds=(world,),
        )  # fmt: skip

    monkeypatch.setattr(CritiqueSampler, "_sample_critiques", sampled)
    monkeypatch.setattr(sampled_critiques, "read_attempt", lambda reader, rollout: rollout)
    monkeypatch.setattr(sampled_critiques, "read_sampled_policy", lambda reader, name: None)
    monkeypatch.setattr(failure_drift, "EngineSampler", lambda *_: None)
    monkeypatch.setattr(failure_drift, "_held_out_run", held_out)
    monkeypatch.setattr(failure_drift, "try_critiques", lambda loaded, name, criticised: {
        each.rollout: [0.5] for each in criticised
    })  # fmt: skip
    kept_run(tmp_path, 9)
    loaded = LoadedConfiguration(Configuration(), WrittenHome(tmp_path / "home").home, "defaults")

    def measured(engine: str, critic: str, critiques: int) -> dict[str, Any]:
        order = DriftOrder(
            loaded, ScriptedRun(tmp_path), engine, critic, 10, critiques, lambda line: None
        )
        asked.clear()
        return measure_drift(order)

    measured("judge", "critic@5", 1)
    assert asked == [("critic@5", 1)] * 9 + [("c@2", 1)] * 3
    again = ASKED[scenario]
    figures = measured(again.engine, again.critic, again.critiques)
    wanted = [(again.critic, 1)] * 9 * again.diagnosed
    assert asked == wanted + [("c@2", again.critiques)] * 3 * again.refined
    assert {each["text"] for each in figures["diagnoses"]} == {f"{again.critic} says so"}


def drift(station: Station, run: str) -> dict[str, Any]:
    told = station.run("train", "drift", run, "-n", "10", "--json", timeout=400).stdout
    return dict(json.loads(told.splitlines()[-1]))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_is_measured_drawn_and_measured_once(trained: Station) -> None:
    small = ("--set", "groups=2", "--set", "group_size=2", "--set", "updates=9", "--name", "word")
    told = json.loads(trained.run(*WORDS, *small, "--json", timeout=600).stdout.splitlines()[-1])
    run = Path(told["folder"]).name
    figures = drift(trained, run)
    assert [each["phase"] for each in figures["checkpoints"]] == [
        phase for phase in PHASES for _ in range(3)
    ]
    assert figures["checkpoints"][0]["policy"] == "base"
    for phase in PHASES:
        critics = figures["critics"][phase]
        assert critics["first"]["critic"] == "base"
        assert critics["own"]["critic"] == (
            "base" if phase == "early" and critics["policy"] == "base" else
            critics["policy"].replace("word@", "word-critic@")
        )  # fmt: skip
        assert 0.0 <= critics["own"]["score with it"] <= 1.0
    said = json.loads((Path(told["folder"]) / "drift.json").read_text())["diagnoses"]
    failed = sum(each["failed"] for each in figures["checkpoints"])
    assert 0 < len(said) <= failed
    assert [Path(file).name for file in figures["pictures"]] == [
        "usefulness.png", "densities.png", "drift.png",
    ]  # fmt: skip
    for file in figures["pictures"]:
        assert Path(file).read_bytes().startswith(b"\x89PNG")
    started = trained.query("SELECT count(*) FROM rollouts")
    assert drift(trained, run) == figures
    assert trained.query("SELECT count(*) FROM rollouts") == started
