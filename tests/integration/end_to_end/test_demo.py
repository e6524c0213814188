"""The tour that a newcomer takes, without a screen."""

import pytest

from tests.support.station import Station

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]


def test_the_demo_runs_guides_and_stops(station: Station) -> None:
    told = station.run("demo", "--headless", timeout=500).stdout
    assert "<real_user>Read README.md before you do anything else.</real_user>" in told
    assert told.count("finished, 10 steps, best score 100.0") == 2, "the script and the sample"
    assert "stopped (pid" in told
    station.run("daemon", "status", code=69)
    station.run("verify")
    (sample,) = [row for row in station.json("rollout", "list") if "recorded" in row["engine"]]
    said = station.json("guidance", sample["rollout"])
    assert [(g["author"], g["mode"], g["step"]) for g in said] == [
        ("ada", "next", 6),
        ("ada", "wake", 8),
    ]
