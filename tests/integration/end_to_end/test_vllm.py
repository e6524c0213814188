"""Whole rollouts on a real vLLM that the daemon starts and watches."""

import json
import os
import signal
from collections.abc import Iterator

import pytest

from tests.support.reference_ledger import Ledger
from tests.support.station import Station

pytestmark = [pytest.mark.vllm, pytest.mark.model, pytest.mark.timeout(900)]

BLOCK = 128
"""Tokens in a block of vLLM's prefix cache on the CPU."""
BUDGET = """
steps = 30
minimum_steps = 30
answer_tokens = 64
sleep_seconds = 1
"""
QUESTION = "In which year was the town founded where the captain of the Morning Heron was born?"


@pytest.fixture(scope="module")
def rollout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Station, str]]:
    """One rollout of thirty steps on vLLM, to its end."""
    station = Station(tmp_path_factory.mktemp("vllm"))
    station.home.mkdir()
    (station.home / "houston.toml").write_text('[engines.vllm]\nkind = "vllm"\n')
    try:
        station.start()
        task = station.task(budget=BUDGET)
        tools = 'tools = ["think", "list_files", "list_sessions", "finish"]\n'
        task.write_text(tools + task.read_text())
        (rollout,) = station.rollout(task, "vllm")
        assert station.ended(rollout, 800)["state"] == "finished"
        yield station, rollout
    finally:
        station.clear()


@pytest.mark.slow
def test_every_step_has_a_valid_call(rollout: tuple[Station, str]) -> None:
    station, id = rollout
    steps = station.steps(id)
    assert len(steps) == 30
    assert not [s for s in steps if not s["calls"] or any(c.get("error") for c in s["calls"])]


@pytest.mark.slow
def test_prompts_rebuilt_from_the_ledger_extend_each_other(rollout: tuple[Station, str]) -> None:
    station, id = rollout
    assert Ledger(station.home, id).check() == 29


@pytest.mark.slow
def test_the_prefix_cache_holds_everything_but_the_newest_observation(
    rollout: tuple[Station, str],
) -> None:
    station, id = rollout
    rows = station.query(
        "SELECT step, kept, cached_tokens FROM samples WHERE rollout = ? AND role = 'policy'", id
    )
    assert len(rows) == 30
    missed = [row for row in rows if (row[2] or 0) < row[1] // BLOCK * BLOCK]
    assert len(missed) <= 1, missed
    assert rows[-1][2] > BLOCK, "something was cached at all"


@pytest.mark.slow
def test_a_question_is_asked_of_a_model_by_planner_and_verifier(
    rollout: tuple[Station, str],
) -> None:
    """SmolLM2 answers nothing that is right; each decision keeps to the form it is held to."""
    station, _ = rollout
    asked = station.run(
        *("ask", QUESTION, "--engine", "vllm", "--steps", "4", "--json"), code=None, timeout=400
    )
    report = json.loads(asked.stdout)
    assert asked.returncode == int(report["answer"] is None), asked.stderr
    (shown,) = station.json("rollout", "show", report["rollout"])
    assert shown["state"] == "finished"
    steps = station.steps(report["rollout"])
    assert 1 <= len(steps) <= 4
    cut = station.query(
        "SELECT step FROM samples WHERE rollout = ? AND finish_reason = 'length'", report["rollout"]
    )
    names = [
        [call["name"] for call in step["calls"]] for step in steps if (step["step"],) not in cut
    ]
    assert all(len(actions) == 1 for actions in names), names
    assert {actions[0] for actions in names} <= {"think", "search", "code", "answer"}
    assert report["verifier"]["unreadable"] <= report["verifier"]["asked"]
    assert Ledger(station.home, report["rollout"], "planner").check() == len(steps) - 1


@pytest.mark.slow
def test_a_vllm_killed_in_mid_sample_is_started_again_and_the_step_is_one_step(
    rollout: tuple[Station, str],
) -> None:
    """Last here: the server of the tests above dies."""
    station, _ = rollout
    budget = "steps = 5\nminimum_steps = 5\nanswer_tokens = 64\nsleep_seconds = 1\n"
    task = station.task("killed", budget=budget)
    task.write_text('tools = ["think", "list_files", "finish"]\n' + task.read_text())
    (id,) = station.rollout(task, "vllm")
    station.until(lambda: station.closed(id) >= 2, 120, "two steps")
    station.until(
        lambda: station.query("SELECT 1 FROM rollouts WHERE id=? AND activity='sampling'", id),
        60,
        "it samples",
    )
    (state,) = (station.home / "run/engines").glob("*.json")
    server = int(json.loads(state.read_text())["pid"])
    os.kill(server, signal.SIGKILL)
    assert station.ended(id, 300)["state"] == "finished"
    assert [step["step"] for step in station.steps(id)] == [1, 2, 3, 4, 5]
    assert int(json.loads(state.read_text())["pid"]) != server
    assert Ledger(station.home, id).check() == 4
    station.run("verify")
