"""Signals of a rollout on a real workstation, and that a killed worker's successor finds them."""

from typing import Any

from houston_shared.records import StepRecord
from tests.integration.agent.rig import Rig

TASK = """
[budget]
steps = 40
evaluations = 2
context_tokens = 1500
answer_tokens = 64
[attention]
idle_sleep_seconds = 1
unchanged_steps = 12
[evaluate]
command = "echo '{\\"overall_score\\": 10}'"
"""
FILES = {"a.py": "one\n", "b.py": "two\n"}


def do(name: str, **arguments: Any) -> dict[str, Any]:
    return {"thought": "on " * 40, "calls": [{"name": name, "arguments": arguments}]}


LIST = do("list_files", path=".")
EDIT = do("edit_file", path="a.py", start=1, end=1, content="two\n")
SCRIPT = [
    EDIT,
    do("open_file", path="b.py"),
    do("edit_file", path="b.py", start=1, end=1, content="three\n"),
    *[LIST] * 4,
    do("sleep", sleep_time=1),
    *[do("open_file", path="none.py")] * 3,
    *[do("search_file", search_term=str(n), file_path="b.py") for n in range(6)],
    do("eval"),
    do("finish"),
]
KILLS = (5, 10, 13)
"""Steps after which the worker is killed, while it samples the next one."""
for _step in KILLS:
    SCRIPT[_step] = {**SCRIPT[_step], "delay": 1.5}
WANTED = {
    1: {"blind_edit"},
    2: set(),
    3: set(),
    6: {"repeated_action"},
    7: {"repeated_action"},
    8: {"idle_sleep"},
    11: {"error", "error_streak", "repeated_action"},
    14: set(),
    15: {"no_change"},
    18: {"no_change", "near_budget"},
    19: {"no_change", "low_finish"},
}


def signals(steps: list[StepRecord]) -> list[tuple[int, tuple[str, ...], dict[str, str]]]:
    found = [(one.step, one.observation) for one in steps if one.observation]
    return [(step, seen.attention, seen.reasons) for step, seen in found]


def test_signals_are_recorded_and_survive_kills_and_forks(rig: Rig) -> None:
    whole = rig.rollout(SCRIPT, environment="workstation", task=TASK, files=FILES)
    process = rig.work(whole)
    killed = rig.rollout(SCRIPT, environment="workstation", task=TASK, files=FILES, name="killed")
    for steps in KILLS:
        worker = rig.work(killed)
        rig.until(lambda n=steps: closed(rig, killed) >= n, why="it gets there")
        rig.kill(worker, killed)
    rig.run(killed)
    process.join(60)
    found = signals(rig.steps(whole))
    told = {step: set(names) for step, names, _ in found}
    assert {step: told.get(step) for step in WANTED} == WANTED
    assert all(set(names) == set(reasons) for _, names, reasons in found)
    assert signals(rig.steps(killed)) == found
    assert rig.query("SELECT count(*) > 0 FROM forks WHERE rollout = ?", killed) == [(1,)]


def test_a_successor_counts_what_repeats_from_where_it_began(rig: Rig) -> None:
    script = [EDIT, *[LIST] * 27, {**LIST, "delay": 1.5}, LIST, do("finish")]
    rollout = rig.rollout(script, environment="workstation", task=TASK, files=FILES)
    worker = rig.work(rollout)
    rig.until(lambda: closed(rig, rollout) >= 28, why="it repeats itself for longer than a window")
    rig.kill(worker, rollout)
    rig.run(rollout)
    told = {
        step: reasons.get("repeated_action", "") for step, _, reasons in signals(rig.steps(rollout))
    }
    assert told[3] == ""
    assert [told[step].split(" times")[0] for step in (4, 28, 29, 30)] == ["3", "27", "28", "29"]
    assert rig.query("SELECT count(*) > 0 FROM forks WHERE rollout = ?", rollout) == [(1,)]


def closed(rig: Rig, rollout: str) -> int:
    ((steps,),) = rig.query("SELECT steps FROM rollouts WHERE id = ?", rollout)
    return int(steps)
