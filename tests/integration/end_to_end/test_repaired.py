"""A rollout whose events were damaged: named, repaired, resumed by a person, and run to its end."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.station import Station

STEPS = 8


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    made = Station(tmp_path)
    yield made
    made.clear()


def test_a_repaired_rollout_goes_on_from_its_last_sound_step(station: Station) -> None:
    steps = [
        {
            "thought": f"Step {number}.",
            "calls": [
                {"name": "run_command", "arguments": {"command": f"echo {number} >> log.txt"}}
            ],
            "delay": 0.3,
        }
        for number in range(1, STEPS + 1)
    ]
    station.start()
    engine = station.script(steps)
    hurt, other = station.rollout(station.task(sandbox="none"), engine, n=2)
    for name in (hurt, other):
        station.until(lambda n=name: station.closed(n) >= 4)
    station.stop()
    connection = sqlite3.connect(station.home / "houston.db")
    with connection:
        ((seq,),) = connection.execute(
            "SELECT seq FROM events WHERE rollout = ? AND step = 3 AND part = 'call.0'", (hurt,)
        )
        connection.execute("UPDATE events SET body = x'00' || body WHERE seq = ?", (seq,))
    connection.close()

    station.start()
    station.until(lambda: station.state(hurt) == "paused")
    row = station.show(hurt)
    assert row["reason"] == f"CORRUPT rollout={hurt} first bad seq={seq}; no backup available"
    assert station.ended(other)["state"] == "finished", "the others go on"
    station.run("repair", code=75)
    station.stop()
    (done,) = station.json("repair")
    assert done["paused"] == {hurt: 2}
    assert station.run("verify").stdout.startswith("Sound")

    station.start()
    assert station.show(hurt)["state"] == "paused", "a person decides"
    station.run("rollout", "resume", hurt)
    assert station.ended(hurt)["state"] == "finished"
    said = [one["thought"] for one in station.steps(hurt)]
    assert said[:STEPS] == [f"Step {number}." for number in range(1, STEPS + 1)]
    station.stop()
    assert station.run("verify").stdout.startswith("Sound")
