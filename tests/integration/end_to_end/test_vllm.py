"""Whole rollouts on a real vLLM that the daemon starts and watches."""

from collections.abc import Iterator

import pytest

from tests.support.ledger import Ledger
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


def test_every_step_has_a_valid_call(rollout: tuple[Station, str]) -> None:
    station, id = rollout
    steps = station.steps(id)
    assert len(steps) == 30
    assert not [s for s in steps if not s["calls"] or any(c.get("error") for c in s["calls"])]


def test_prompts_rebuilt_from_the_ledger_extend_each_other(rollout: tuple[Station, str]) -> None:
    station, id = rollout
    assert Ledger(station.home, id).check() == 29


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
