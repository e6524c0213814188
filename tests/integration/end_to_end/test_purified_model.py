"""SmolLM2 writes what is no action, and looks ahead: its attempts and prompts, id by id."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.station import Station

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(900)]

TASK = """
name = "ahead"
instructions = "Compute 3 * 7 with the python tool: print(3 * 7)."
environment = "python"
[budget]
steps = 1
answer_tokens = 48
[sampling]
guided = false
temperature = 1.0
"""


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    made = Station(tmp_path_factory.mktemp("purified"))
    made.start()
    yield made
    made.clear()


def prompt(station: Station, rollout: str, step: int, attempt: int) -> list[int]:
    words = ("context", rollout, str(step), "--attempt", str(attempt))
    (view,) = station.json(*words)
    ids: list[int] = view["token_ids"]
    return ids


def test_the_temporary_context_goes_on_from_what_failed(station: Station) -> None:
    folder = Path(station.folder) / "tasks" / "ahead"
    folder.mkdir(parents=True)
    (folder / "task.toml").write_text(TASK)
    words = ["rollout", "start", str(folder), "--engine", "embedded", "--seed", "1"]
    (row,) = station.json(*words, "--purify", "enabled=true,share=1,retries=2")
    shown = station.ended(row["rollout"], 800)
    assert shown["state"] == "finished", shown
    assert shown["purification"]["lookahead_samples"], "135 million parameters write no JSON"
    for step in station.steps(row["rollout"]):
        check(station, row["rollout"], step)
    station.run("verify")


def check(station: Station, rollout: str, step: dict[str, Any]) -> None:
    """Each correction's prompt begins with the prompt before it, and a purified attempt stands in
    that of the first one."""
    number = step["step"]
    for attempt in [one["attempt"] for one in step.get("attempts", ()) if one["attempt"] > 1]:
        before = prompt(station, rollout, number, attempt - 1)
        after = prompt(station, rollout, number, attempt)
        assert after[: len(before)] == before and len(after) > len(before)
    if "purification" in step:
        attempt = step["purification"]["from_attempt"] + 1
        first = prompt(station, rollout, number, 1)
        assert prompt(station, rollout, number, attempt) == first
