"""F2: the writer's thread dies. Nothing more is acked, the daemon says why and ends with 70."""

import pytest

from tests.faults import workloads
from tests.faults.daemon_under_test import Ground, Speaker
from tests.faults.final_checks import until_over, wrong
from tests.support.station import Station
from tests.support.tiers import sampled

RECORDER_FAILED = 70


POINTS = [
    "recorder.commit.before",
    "recorder.commit.after",
    "recorder.answer.before",
    "recorder.checkpoint.before",
]


@pytest.mark.parametrize("point", sampled(POINTS, 1))
def test_the_daemon_ends_and_says_why(ground: Ground, station: Station, point: str) -> None:
    ground.started()
    speaker = Speaker(ground, "ann")
    speaker.rollouts = ground.rollouts(workloads.null(ground, 25), 2)
    speaker.start()
    steps = "SELECT 1 FROM steps WHERE step >= 3"
    ground.until(lambda: ground.query(steps), 60, "rollouts at work")
    ground.order(point, "raise" if "checkpoint" in point else "raise@3")
    assert ground.ended() == RECORDER_FAILED
    assert ground.orphans == []
    stored = ground.query("SELECT max(seq) FROM events")
    cause = f"writer failed: InjectedFault: ordered at {point}"
    assert cause in (ground.home.logs / "daemon.log").read_text()

    station.environment["HOUSTON_HOME"] = str(ground.home.path)
    said = station.run("daemon", "status", code=69).stderr
    assert cause in said, "the status says why"
    (status,) = [station.run("daemon", "status", "--json", code=69).stdout]
    assert "writer failed" in status
    assert ground.query("SELECT max(seq) FROM events") == stored, "nothing was stored after it"

    ground.started()
    until_over(ground)
    speaker.stop()
    assert wrong(ground, speaker) == []
    assert ground.stop() == 0
    assert "writer failed" not in station.run("daemon", "status", code=69).stderr
