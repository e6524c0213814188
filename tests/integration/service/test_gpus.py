"""GPUs of a node go to one rollout at a time; the others wait, and every listing says for what."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.station import Station


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    made = Station(tmp_path)
    made.home.mkdir()
    (made.home / "houston.toml").write_text("[hosts]\ngpus = 1\n")
    yield made
    made.clear()


def test_a_rollout_waits_for_a_gpu_and_sees_only_its_own(station: Station) -> None:
    task = station.task(budget="command_seconds = 20")
    task.write_text("gpus = 1\n" + task.read_text())
    show = {"name": "run_command", "arguments": {"command": "echo sees $CUDA_VISIBLE_DEVICES."}}
    hold = {"name": "sleep", "arguments": {"sleep_time": 600}}
    station.start()
    (first,) = station.rollout(task, station.script([{"calls": [show]}, {"calls": [hold]}], "a"))
    station.until(lambda: station.closed(first) == 1, 60, "the first runs")
    (second,) = station.rollout(task, station.script([{"calls": [show]}], "b"))
    ledger = station.home / "gpus.json"
    station.until(lambda: second in ledger.read_text(), 60, "the second waits")
    assert station.state(second) == "queued"
    listed = {row["rollout"]: row for row in station.json("rollout", "list")}
    assert listed[second]["reason"] == (
        f"waits for 1 GPU on local: all 1 are taken, used by rollout {first}"
    )
    for words in (
        f"local: 1 of 1 leased: 0 by rollout {first}",
        f"rollout {second} waits for 1 GPU",
    ):
        station.until(lambda w=words: w in station.run("daemon", "status").stdout, 60, words)
    assert "sees 0." in station.steps(first)[0]["observation"]

    station.run("daemon", "restart")
    assert first in ledger.read_text()
    station.run("rollout", "cancel", first)
    station.ended(second)
    assert "sees 0." in station.steps(second)[0]["observation"]

    task.write_text(task.read_text().replace("gpus = 1", "gpus = 2"))
    refused = station.run(
        "rollout", "start", str(task), "--engine", station.script([{"calls": [show]}], "c"), code=78
    )
    assert "asks for 2 on local, which has 1" in refused.stderr
