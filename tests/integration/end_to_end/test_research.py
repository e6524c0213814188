"""Three hundred steps of research on two machines, from the first look to the report; and the same
rollout as it is kept in trajectories/samples, played into another home.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.environments.workstation_actions import ACTIONS
from tests.support.research import data
from tests.support.research.plan import STEPS
from tests.support.research.playing import SAMPLE, SECOND, begin, two_machines
from tests.support.research.runs import TASK
from tests.support.station import Station

SCORES = [20.0, 55.0, 90.0]


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    with two_machines(tmp_path_factory.mktemp("research")) as made:
        yield made


def _is_the_research(station: Station, rollout: str) -> list[dict[str, Any]]:
    """What must be true of it wherever it was played; its steps."""
    steps = station.steps(rollout)
    assert [step["step"] for step in steps] == [*range(1, STEPS + 1)]
    assert all(step["observation"] for step in steps)
    used = Counter(call["name"] for step in steps for call in step["calls"])
    families = {ACTIONS[name].family for name in used}
    assert families == {"command", "file", "parse", "search", "browse", "system"}
    assert used["sleep"] >= 3 and used["run_command"] > 100 and used["edit_file"] > 20
    placed = {call["arguments"].get("host", "local") for step in steps for call in step["calls"]}
    assert placed == {"local", SECOND}
    there = [f for step in steps for f in step["files"] if f["path"].startswith(f"{SECOND}:")]
    assert there, "files change on the second machine too"
    scores = station.query(
        "SELECT score FROM evaluations WHERE rollout = ? ORDER BY number", rollout
    )
    assert [score for (score,) in scores] == SCORES
    ((forks,),) = station.query("SELECT count(*) FROM forks WHERE rollout = ?", rollout)
    assert forks >= 1
    return steps


@pytest.mark.slow
def test_three_hundred_steps_of_research(station: Station) -> None:
    rollout = begin(station)
    record = station.ended(rollout, 200)
    assert (record["state"], record["reason"]) == ("finished", "finish"), record
    assert record["best_score"] == record["final_score"] == SCORES[-1]
    steps = _is_the_research(station, rollout)
    calls = [call for step in steps for call in step["calls"]]
    background = [one for one in calls if one["arguments"].get("wait_for_completion") is False]
    assert len(background) > 30
    assert any("started without waiting" in step["observation"] for step in steps)
    wrong = [step["step"] for step in steps if "error" in step["attention"]]
    assert len(wrong) == 1, "of its own making: a command for a busy session"
    assert "was not started" in steps[wrong[0] - 1]["observation"]
    done = [s for s in steps if "dev_accuracy" in s["observation"] and "wait" in s["thought"]]
    for step in done:
        noted = steps[step["step"]]["thought"]
        kept, accuracy = noted.split(" keeps ")[1].split(" rows, dev accuracy ")
        assert f"kept {kept} of 500 dev_accuracy {accuracy.split('. ')[0]}" in step["observation"]
    assert len(done) > 30, "what it says of a run is what the run says"
    station.run("verify")


def test_the_kept_sample_is_that_rollout(station: Station) -> None:
    (rollout,) = station.rollout(TASK / "task.toml", f"recorded:{SAMPLE}")
    assert station.ended(rollout)["state"] == "finished"
    _is_the_research(station, rollout)
    assert SAMPLE.stat().st_size < 1_500_000
    assert "Filter a noisy set of reviews" in station.run("context", rollout, "250").stdout


def test_the_data_of_the_sample_is_what_its_program_writes(tmp_path: Path) -> None:
    data.write(tmp_path)
    for path in ("truth.json", "workspace/data/reviews.tsv", "workspace/data/dev.tsv"):
        assert (tmp_path / path).read_text() == (TASK / path).read_text()
