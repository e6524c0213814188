"""The tour that a newcomer takes, without a screen."""

from pathlib import Path
from typing import Any

import pytest

from houston_daemon.demo.demo_tour import LIVE_ADAPTER
from houston_daemon.engines.local_model import LOCAL_EXTRA_PACKAGES
from tests.support.station import Station

pytestmark = pytest.mark.timeout(600)
HEARD = "<real_user>Read README.md.</real_user>"


def sample(station: Station) -> Any:
    """The rollout of the recorded sample."""
    (row,) = [row for row in station.json("rollout", "list") if "recorded" in row["engine"]]
    return row


def written_by_the_agent(station: Station) -> str:
    """What stands in the file that the tour had the agent write."""
    (row,) = [row for row in station.json("rollout", "list") if row["task"] == "errands"]
    shown = station.json("rollout", "show", row["rollout"])[0]
    return (Path(shown["workspace"]) / "hi.txt").read_text().strip()


@pytest.mark.slow
@pytest.mark.model
def test_the_demo_runs_guides_and_stops(station: Station) -> None:
    told = station.run("demo", "--headless", timeout=500).stdout
    assert HEARD in told
    if LIVE_ADAPTER.is_dir():
        assert "The agent followed each message" in told
        assert written_by_the_agent(station) == "hello"
    assert told.count("finished, 10 steps, best score 100.0") == 2, "the script and the sample"
    assert "stopped (pid" in told
    station.run("daemon", "status", code=69)
    station.run("verify")
    said = station.json("guidance", sample(station)["rollout"])
    assert [(g["author"], g["mode"], g["step"]) for g in said] == [
        ("ada", "next", 5),
        ("ada", "wake", 8),
    ]


@pytest.mark.slow
def test_without_the_extra_local_script_and_recording_play(
    station: Station, tmp_path: Path
) -> None:
    """What the extra brings cannot be imported, in any process of it."""
    hidden = f"import sys\nsys.modules.update(dict.fromkeys({LOCAL_EXTRA_PACKAGES!r}))\n"
    (tmp_path / "base").mkdir()
    (tmp_path / "base/sitecustomize.py").write_text(hidden)
    station.environment["PYTHONPATH"] = str(tmp_path / "base")
    told = station.run("demo", "--headless", timeout=300)
    assert f"No model runs: it needs {', '.join(LOCAL_EXTRA_PACKAGES)}." in told.stderr
    assert "next: pip install 'houston-agents[local]'" in told.stderr
    assert HEARD in told.stdout
    assert told.stdout.count("finished, 10 steps, best score 100.0") == 2
    assert sample(station)["state"] == "finished"
    assert len(station.json("rollout", "list")) == 2
