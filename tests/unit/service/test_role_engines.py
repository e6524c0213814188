"""Engines of roles: what a task may say, what a rollout is started with, who is waited for."""

import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from houston_daemon.agent.role_samplers import role_sampling
from houston_daemon.agent.rollout_setup import step_budget
from houston_daemon.service.rollout_start_checks import build_rollout_specs, check_engines
from houston_daemon.service.supervisor_queries import find_failing_engines, read_resumable_rollouts
from houston_daemon.training.rl.rl_recipe import RlRecipe
from houston_daemon.training.rl.rollout_groups import (
    refuse_other_engines,
    require_neutral_sampling,
)
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.engine_settings import EnginePrice, EngineSettings
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.home import Home
from houston_shared.records import RolloutSpec
from houston_shared.sample_roles import SAMPLE_ROLES
from houston_shared.store.rollout_queries import engine_waited_for
from houston_shared.task import LoadedTask, load_task
from houston_shared.task_tables import AgentSettings

FAR = EngineSettings(kind="chat", url="http://127.0.0.1:1/v1", model="m")


def loaded(folder: Path) -> LoadedConfiguration:
    configuration = Configuration(engines={"far": FAR, "near": FAR})
    return LoadedConfiguration(configuration, Home(folder / "home"), "houston.toml")


def task(folder: Path, more: str) -> LoadedTask:
    (folder / "task.toml").write_text(f'name = "t"\ninstructions = "Do it."\n{more}')
    return load_task(folder)


def spec(folder: Path, more: str, engine: str = "near") -> RolloutSpec:
    (made,) = build_rollout_specs(loaded(folder), task(folder, more), engine, 1, 1)
    return made


def test_settings_of_roles_are_of_roles_that_there_are() -> None:
    other_keys = {"kind", "verify", "memory", "autopilot"}
    assert set(AgentSettings.__struct_fields__) - other_keys <= set(SAMPLE_ROLES)


def test_a_role_has_its_engine_and_what_it_sets_otherwise(tmp_path: Path) -> None:
    more = "[sampling]\ntemperature = 0.9\ntop_p = 0.5\n[agent.summary]\ntemperature = 0.0\n"
    definition = task(tmp_path, more).task
    assert definition.roles == ("planner", "summary", "verifier")
    sampling = role_sampling(definition, "summary")
    assert (sampling.temperature, sampling.top_p) == (0.0, 0.5)
    assert role_sampling(definition, "policy").temperature == 0.9
    assert spec(tmp_path, more).role_engines == {}
    own = spec(tmp_path, '[agent.summary]\nengine = "far"\n').role_engines["summary"]
    assert (own.engine, own.engine_settings["url"]) == ("far", FAR.url)
    assert spec(tmp_path, '[agent.summary]\nengine = "far"\n', "far").role_engines == {}
    own = spec(tmp_path, '[agent.summary]\nengine = "script:s.jsonl"\n').role_engines["summary"]
    assert own.engine_settings["path"] == str(tmp_path / "s.jsonl"), "beside the task file"


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ('[agent.summary]\nengine = "nobody"\n', "`agent.summary.engine`: There is no engine"),
        ('[agent.summary]\nengine = "recorded:r"\n', "which cannot answer"),
        ('[agent.pilot]\nengine = "far"\n', "pilot"),
    ],
)
def test_a_role_or_engine_that_is_none_is_refused(tmp_path: Path, more: str, cause: str) -> None:
    with pytest.raises(ConfigurationError, match=cause):
        spec(tmp_path, more)


FLOW = '[agent]\nkind = "flow"\n'


def test_the_planners_engine_takes_the_place_of_the_rollouts(tmp_path: Path) -> None:
    """Others of its roles keep the rollout's, which is then one of their own."""
    plain = spec(tmp_path, FLOW)
    assert (plain.engine, plain.role_engines) == ("near", {})
    own = spec(tmp_path, f'{FLOW}[agent.planner]\nengine = "far"\n')
    assert own.engine == "far"
    assert {role: each.engine for role, each in own.role_engines.items()} == {
        "summary": "near",
        "verifier": "near",
    }
    both = spec(tmp_path, f'{FLOW}planner.engine = "far"\nverifier.engine = "far"\n')
    assert {role: each.engine for role, each in both.role_engines.items()} == {"summary": "near"}
    same = spec(tmp_path, f'{FLOW}planner.engine = "near"\n')
    assert (same.engine, same.role_engines) == ("near", {})


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ('[agent.planner]\nengine = "far"\n', "are used only with `agent.kind"),
        ("[agent.verifier]\ntemperature = 0.0\n", "are used only with `agent.kind"),
        ("[agent.memory]\nenabled = true\n", "are used only with `agent.kind"),
        (f'{FLOW}planner.engine = "nobody"\n', "`agent.planner.engine`: There is no engine"),
        ('agent = "flows"\n', "agent"),
    ],
)
def test_what_only_a_flow_has_is_refused_elsewhere(tmp_path: Path, more: str, cause: str) -> None:
    with pytest.raises(ConfigurationError, match=cause):
        spec(tmp_path, more)


def test_a_planner_may_sample_otherwise(tmp_path: Path) -> None:
    more = f"{FLOW}planner.temperature = 0.1\nplanner.answer_tokens = 99\n"
    definition = task(tmp_path, more).task
    assert definition.step_role == "planner"
    assert role_sampling(definition, "planner").temperature == 0.1
    assert step_budget(definition).answer_tokens == 99
    assert task(tmp_path, 'agent = "flow"\n').task.step_role == "planner"
    assert task(tmp_path, "").task.step_role == "policy"


def test_all_engines_are_looked_for_before_a_start(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"thought": "x"}\n')
    script = f"script:{tmp_path / 'p.jsonl'}"
    own = task(tmp_path, '[agent.summary]\nengine = "script:gone.jsonl"\n')
    with pytest.raises(ConfigurationError, match=r"gone\.jsonl"):
        check_engines(loaded(tmp_path), own, script, {})
    check_engines(loaded(tmp_path), task(tmp_path, ""), script, {})


def test_a_budget_of_cost_needs_a_price(tmp_path: Path) -> None:
    (tmp_path / "played.jsonl").write_text('{"thought": "x", "calls": []}\n')
    script = f"script:{tmp_path}/played.jsonl"
    costly = task(tmp_path, "[budget]\ncost = 5.0\n")
    with pytest.raises(ConfigurationError, match="has no price"):
        check_engines(loaded(tmp_path), costly, script, {})
    free = EngineSettings(
        kind="script", path=str(tmp_path / "played.jsonl"), price=EnginePrice(input=0, output=0)
    )
    config = Configuration(engines={"played": free})
    check_engines(LoadedConfiguration(config, Home(tmp_path), "x.toml"), costly, "played", {})


@pytest.mark.parametrize(
    ("cached_price", "cost"), [(None, 0.0058), (0.5, 0.0038)], ids=["as input", "of its own"]
)
def test_what_tokens_cost(cached_price: float | None, cost: float) -> None:
    price = EnginePrice(input=3.0, output=7.0, cached=cached_price)
    assert price.cost(1_000, 800, 400) == pytest.approx(cost)
    assert price.cost(10, 800, 0) <= 10 * 3.0 / 1e6, "no more is cached than there is"


def test_a_role_that_another_engine_samples_is_no_policys_to_train(tmp_path: Path) -> None:
    made = spec(tmp_path, '[agent.summary]\nengine = "far"\n')
    with pytest.raises(HoustonError, match="role summary sampled by far") as refused:
        refuse_other_engines(made, RlRecipe())
    assert 'roles=\'["policy", "planner"]\'' in refused.value.next
    refuse_other_engines(made, RlRecipe(roles=("policy",)))
    refuse_other_engines(spec(tmp_path, ""), RlRecipe())


BENT: dict[str, tuple[dict[str, Any], str, str]] = {
    # of the engine, of the task, what is told
    "nothing": ({"parameters": {"temperature": 1.0, "seed": 3}}, "", ""),
    "another temperature": ({"parameters": {"temperature": 0.3}}, "", "temperature = 0.3"),
    "the best tokens": ({"parameters": {"top_k": 20}}, "", "top_k = 20"),
    "the server's": ({"omit_parameters": ["temperature"]}, "", "temperature = unknown"),
    "stripped": ({}, '[sampling]\nthoughts = "strip"\n', 'thoughts = "strip"'),
}


@pytest.mark.parametrize("name", BENT)
def test_what_could_not_be_trained_is_refused_before_it_is_sampled(
    tmp_path: Path, name: str
) -> None:
    engine, more, cause = BENT[name]
    made = spec(tmp_path, more)
    made = msgspec.structs.replace(made, engine_settings={**made.engine_settings, **engine})
    if not cause:
        return require_neutral_sampling(made)
    with pytest.raises(HoustonError, match="not its own") as refused:
        require_neutral_sampling(made)
    assert cause in refused.value.cause


@pytest.mark.parametrize(
    ("activity", "engine"),
    [
        ("waiting for the engine: it is away", "e"),
        ("waiting for the engine big: it is away: really", "big"),
        ("waiting for the engine", "e"),
    ],
)
def test_who_is_waited_for(tmp_path: Path, activity: str, engine: str) -> None:
    assert engine_waited_for(activity, "e") == engine
    file = tmp_path / "h.db"
    with sqlite3.connect(file) as connection:
        connection.execute(
            "CREATE TABLE rollouts (id, engine, role_engines, steps, state, activity, paused_by)"
        )
        roles = '{"summary": {"engine": "big", "policy": ""}}'
        row = ("r", "e", roles, 3, "running", activity, "")
        connection.execute("INSERT INTO rollouts VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    found = read_resumable_rollouts(connection)
    assert found["r"].engines == ("e", "big")
    failing = find_failing_engines({"e": "ready", "big": "ready"}, found)
    why = activity.partition(": ")[2]
    assert failing == ({engine: f"failing: {why}"} if why else {})
