"""With a fixed clock, a script and a tool without effect: killed between calls is never killed.

One rollout runs unharmed. The others lose workers, or the daemon, at every message of theirs,
before it is sent and when it is on disk; at the end nothing tells them from the first.
"""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults import injection, rollout_equality, workloads
from tests.faults.daemon_under_test import Ground
from tests.support.tiers import sampled

NOW = 1_800_000_000
SCRIPT = [
    {
        "thought": f"t{n} {workloads.LONG if n == 3 else ''}",
        "calls": [workloads.call("noop", text=f"{n} " * 400)] * (1 + n % 2),
        "delay": 0.02,
    }
    for n in range(1, 6)
] + [{"thought": "no call at all", "calls": []}]
TASK = 'environment = "null"\n[budget]\ncontext_tokens = 1500\nanswer_tokens = 64\n'
WORKER = [
    [("worker.hello.before", 1), ("worker.sample.after", 1), ("worker.fork.before", 1)],
    [("worker.hello.after", 1), ("worker.sample.asked", 2), ("worker.fork.after", 1)],
    [("worker.open.before", 1), ("worker.sample.before", 3), ("worker.summary.after", 1)],
    [("worker.open.after", 1), ("worker.intent.before", 1), ("worker.summary.before", 1)],
    [("worker.head.before", 1), ("worker.intent.before", 2), ("worker.moved.before", 1)],
    [("worker.head.after", 1), ("worker.result.after", 2), ("worker.moved.after", 1)],
    [("worker.result.after", 1), ("worker.observation.before", 2), ("worker.close.before", 1)],
    [("worker.snapshot.before", 1), ("worker.observation.after", 1), ("worker.sample.asked", 1)],
    [("worker.snapshot.after", 1), ("worker.sample.before", 1), ("worker.close.after", 1)],
]
"""Where the workers of each wave die: the point, and the how-manieth time of that worker."""
DAEMON: list[tuple[str, int, str]] = [
    ("worker.open.after", 1, "now"),
    ("worker.head.before", 1, "stored"),
    ("worker.sample.before", 1, "now"),
    ("worker.sample.asked", 1, "stored"),
    ("worker.intent.before", 1, "now"),
    ("worker.result.after", 1, "now"),
    ("worker.snapshot.after", 1, "now"),
    ("worker.observation.before", 1, "stored"),
    ("worker.summary.after", 1, "now"),
    ("worker.fork.before", 1, "stored"),
    ("worker.moved.before", 1, "stored"),
]
"""Where the worker stands when the daemon dies: at once, or with its next message on disk and not
answered."""
Whole = tuple[list[tuple[Any, ...]], dict[str, list[tuple[Any, ...]]]]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    made = Ground(tmp_path_factory.mktemp("equal") / "ground")
    (made.orders / injection.CLOCK_FILE).write_text(str(NOW))
    # Live rules judge when they come to it: a verdict's place in the log differs by chance.
    made.environment["HOUSTON__DAEMON__LIVE_RULES"] = "false"
    try:
        made.started()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def task(ground: Ground) -> tuple[Path, str]:
    return ground.task("null", TASK, SCRIPT)


@pytest.fixture(scope="module")
def whole(ground: Ground, task: tuple[Path, str]) -> Whole:
    """What a rollout leaves that nobody killed."""
    (rollout,) = ground.rollouts(task)
    ended(ground, rollout)
    made = rollout_equality.journal(ground, rollout), rollout_equality.tables(ground, rollout)
    assert {row[4] for row in made[0]} == {NOW * 1_000_000}, "the clock is fixed"
    assert sum(row[3] == "fork" for row in made[0]) >= 1, "it forks"
    assert made[1]["steps"], "and its tables are compared"
    return made


def ended(ground: Ground, *rollouts: str) -> None:
    for rollout in rollouts:
        ground.until(lambda one=rollout: ground.states()[one] == "finished", 60, "its end")


def same(ground: Ground, rollout: str, whole: Whole) -> None:
    assert rollout_equality.journal(ground, rollout) == whole[0]
    assert rollout_equality.tables(ground, rollout) == whole[1]


@pytest.mark.slow
def test_a_rollout_whose_workers_are_killed_between_calls(
    ground: Ground, task: tuple[Path, str], whole: Whole
) -> None:
    rollouts: list[str] = []
    for wave in WORKER:
        before = len(ground.fired())
        for point, times in wave:
            ground.order(point, f"kill@{times}")
        rollouts += ground.rollouts(task, 2)
        names = {point for point, _ in wave}
        ground.until(
            lambda b=before, n=names: n <= {name for name, *_ in ground.fired()[b:]},
            60,
            f"deaths at {names}",
        )
    ended(ground, *rollouts)
    for rollout in rollouts:
        same(ground, rollout, whole)
    deaths = sum(len(wave) for wave in WORKER)
    over = 3  # moved.after and both of close: their rollouts had ended
    assert ground.query("SELECT sum(lease - 1) FROM rollouts") == [(deaths - over,)]


@pytest.mark.parametrize("deaths", sampled([DAEMON[::3], DAEMON], 1), ids=len)
def test_a_rollout_whose_daemon_is_killed_between_calls(
    ground: Ground, task: tuple[Path, str], whole: Whole, deaths: list[tuple[str, int, str]]
) -> None:
    (rollout,) = ground.rollouts(task)
    for point, times, when in deaths:
        before = len(ground.fired())
        ground.order(point, f"delay=0.3@{times}")
        ground.until(lambda b=before: ground.fired()[b:], 60, f"a worker at {point}")
        if when == "now":
            ground.signal(signal.SIGKILL)
        else:
            ground.order("recorder.batch.after", "kill")
        ground.ended()
        ground.started()
    ended(ground, rollout)
    same(ground, rollout, whole)
    assert ground.query("SELECT lease FROM rollouts WHERE id = ?", rollout)[0][0] > len(deaths) - 1
