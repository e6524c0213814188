"""The account of a ground that a test drives by itself."""

from houston_daemon.maintenance.home_verification import verify_home
from tests.faults.daemon_under_test import Ground, Speaker, history
from tests.faults.history import check
from tests.faults.stored import stored


def until_over(ground: Ground, seconds: float = 120) -> None:
    """Wait until every rollout has finished."""

    def over() -> bool:
        states = set(ground.states().values())
        assert "failed" not in states, ground.log()
        return states == {"finished"}

    ground.until(over, seconds, "every rollout finishes")


def wrong(ground: Ground, *speakers: Speaker) -> list[str]:
    """Everything that contradicts what workers and people saw; the daemon may run."""
    found = check(history(ground, list(speakers)), stored(ground.home))
    return [str(one) for one in (*found, *verify_home(ground.home).findings)]
