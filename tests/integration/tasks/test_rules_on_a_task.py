"""Rules on real rollouts of a packaged task: one that follows its reference, one that does not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.commands.task_commands import TEMPLATES
from tests.support.station import Station

TASK = TEMPLATES / "filter-messages"
SOLVE = (TASK / "reference" / "solve.py").read_text()
Scripted = list[tuple[list[dict[str, Any]], set[str]]]
"""Calls of each step, and the rules that must mask it."""


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def run(command: str, **more: Any) -> dict[str, Any]:
    return call("run_command", command=command, **more)


def write(filename: str, content: str) -> dict[str, Any]:
    return call("create_file", filename=filename, content=content)


GOOD: Scripted = [
    ([call("list_files", path="scripts"), call("open_file", path="scripts/try_it.py")], set()),
    ([run("python3 scripts/try_it.py; grep -c no_such_word candidates.jsonl")], set()),
    ([write("solve.py", SOLVE)], set()),
    ([run("python3 solve.py .", session_id="job", wait_for_completion=False)], set()),
    ([call("sleep", sleep_time=1)], set()),
    ([run("until test -s selected.json; do sleep 0.1; done"), run("ls -l selected.json")], set()),
    ([call("get_session_output", session_id="job")], set()),
    ([run("python3 solve.py . && python3 scripts/try_it.py")], set()),
    ([call("eval")], set()),
    ([run("mkdir -p best && cp selected.json best/100.json")], set()),
    ([call("finish")], set()),
]
BAD: Scripted = [
    ([call("list_files", path="scripts")], set()),
    ([write("my_try_it.py", "print('fine')\n")], {"ignored_script"}),
    ([run("python3 my_try_it.py")], {"ignored_script", "contradicted_guidance"}),
    ([run("python3 nothing_there.py")], {"error_observation"}),
    ([write("pick.py", "if True\n    pass\n")], {"broken_file"}),
    ([run("python3 pick.py")], {"error_observation"}),
    ([call("edit_file", path="pick.py", start=1, end=1, content="if True:")], set()),
    ([call("edit_file", path="pick.py", start=2, end=2, content="    x = 1")], {"blind_edit"}),
    ([call("eval")], set()),
    ([call("eval")], {"repeated_evaluation"}),
    ([call("fly", to="moon")], {"null_action", "error_observation"}),
    ([write("solve.py", SOLVE), run("python3 solve.py .")], set()),
    ([call("eval")], set()),
    ([run("echo [1] > selected.json; python3 my_try_it.py")],
     {"after_best", "contradicted_guidance", "ignored_script"}),
    ([run("python3 -c 'open(\"no_such\")'", session_id="x", wait_for_completion=False)],
     {"error_observation", "after_best"}),
    ([run("sleep 60", session_id="y", wait_for_completion=False)], {"after_best"}),
    ([call("eval")], {"error_observation", "untimely_evaluation", "after_best"}),
    ([call("finish")], {"untimely_finish"}),
]  # fmt: skip


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    made = Station(tmp_path_factory.mktemp("ruled"))
    made.start()
    yield made
    made.clear()


def begin(station: Station, name: str, steps: Scripted) -> str:
    script: list[dict[str, Any]] = [
        {"thought": "I act.", "calls": calls, "delay": 1.0 * (calls == [call("finish")])}
        for calls, _ in steps
    ]
    (rollout,) = station.rollout(TASK / "task.toml", station.script(script, name))
    return rollout


def masked(station: Station, rollout: str) -> dict[int, set[str]]:
    """By step, the rules that mask it, as the command says."""
    return {
        line["step"]: {one["rule"] for one in line["sources"][0]["rules"]}
        for line in station.json("verdict", rollout)
        if line["sources"]
    }


def test_rules_mask_what_is_bad_and_nothing_of_what_is_good(station: Station) -> None:
    bad = begin(station, "bad", BAD)
    station.run("guide", bad, "Stop running my_try_it.py.")  # before or after: both are condemned
    good = begin(station, "good", GOOD)
    assert station.ended(good)["best_score"] == station.ended(bad)["best_score"] == 100
    first = {
        one["rollout"]: one["rules"] for one in station.json("judge", good, bad, "--rules-only")
    }
    expected = {number: rules for number, (_, rules) in enumerate(BAD, 1) if rules}
    assert first[bad]["changed"] == len(expected)
    assert masked(station, bad) == expected
    assert masked(station, good) == {}
    again = station.json("judge", good, bad, "--rules-only")
    assert {one["rules"]["changed"] for one in again} == {0}, "it says the same and sends nothing"
    why = station.run("verdict", f"{bad}@8").stdout
    assert "step 8 is masked: by rule" in why
    assert "blind_edit@6: pick.py was changed and not looked at in the step before" in why
    station.run("verify")


def test_rules_that_are_none_are_said_before_a_rollout_starts(
    station: Station, tmp_path: Path
) -> None:
    task = station.task("unruly")
    task.write_text(task.read_text() + '\n[rules]\noff = ["blind_edits"]\n')
    failed = station.run("task", "validate", str(task), code=78)
    assert "`rules`: There is no rule 'blind_edits'" in failed.stderr
