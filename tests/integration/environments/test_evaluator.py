"""An evaluator is shut in, limited and checked; only a score uses up a submission."""

import asyncio
import fcntl
import os
from pathlib import Path

import pytest

from houston_daemon.environments.environment_protocol import Stop
from houston_daemon.environments.environment_registry import make_environment
from houston_shared.task_tables import EvaluationSettings
from tests.integration.environments.conftest import MakeStation, Station

SCORE = """
import json, os, pathlib
words = pathlib.Path(os.environ["WORKSPACE"], "notes.txt").read_text().split()
print(json.dumps({"overall_score": 10 * len(words), "words": len(words)}))
"""


async def test_a_score_counts_and_shows_its_metrics(make_station: MakeStation) -> None:
    station = await make_station(SCORE)
    result = await station("eval")
    assert (result.kind, result.success) == ("eval", True)
    fields = {name: result.fields[name] for name in ("overall_score", "state", "counted", "words")}
    assert fields == {"overall_score": 30.0, "state": "scored", "counted": True, "words": 3}
    assert result.fields["seconds"] > 0
    assert "overall_score: 30 of 100 (1 submission left)" in result.text
    assert "words: 3" in result.text


FAILING = [
    ("crash", "raise SystemExit('the answer is 42')", "failed", "exit code 1"),
    ("nonsense", "print('great work!')", "format", "not one JSON object"),
    ("nothing", "", "format", "printed nothing"),
    ("out of range", "print('{\"overall_score\": 1000}')", "format", "between 0 and 100"),
    ("flood", "print('x' * 3_000_000)", "format", "longer than"),
    ("killed", "import os; os.kill(os.getpid(), 9)", "failed", "exit code"),
]


@pytest.mark.parametrize(
    ("_", "evaluator", "state", "says"), FAILING, ids=[row[0] for row in FAILING]
)
async def test_a_failing_evaluator_costs_no_submission(
    make_station: MakeStation, _: str, evaluator: str, state: str, says: str
) -> None:
    station = await make_station(evaluator or "pass")
    result = await station("eval")
    assert (result.kind, result.success) == ("eval", False)
    assert (result.fields["state"], result.fields["counted"]) == (state, False)
    assert result.fields["overall_score"] is None
    assert says in result.text
    assert "No submission was used; 2 submissions left" in result.text
    assert "42" not in result.text and "great work" not in result.text


async def test_what_an_evaluator_prints_besides_a_score_is_for_people(
    make_station: MakeStation,
) -> None:
    station = await make_station("print('great work!')")
    result = await station("eval")
    assert "It printed: great work!" in result.fields["detail"]
    assert "great work" not in result.text


async def test_what_an_evaluator_says_on_stderr_is_for_people(make_station: MakeStation) -> None:
    station = await make_station("raise SystemExit('the answer is 42')")
    assert "the answer is 42" in (await station("eval")).fields["detail"]


async def test_an_evaluator_that_hangs_is_ended(make_station: MakeStation) -> None:
    limit = EvaluationSettings(command="python3 evaluate.py", seconds=0.7)
    station = await make_station("import time; time.sleep(60)", evaluate=limit)
    result = await station("eval")
    assert (result.fields["state"], result.fields["counted"]) == ("failed", False)
    assert "longer than 0.7 s" in result.text


async def test_a_task_whose_folder_is_gone_is_said_so(
    make_station: MakeStation, tmp_path: Path
) -> None:
    station = await make_station("print(1)")
    (tmp_path / "task").rename(tmp_path / "moved")
    result = await station("eval")
    assert "The task's folder, where its evaluator lies, is not there now." in result.text


PRIVATE = """
import json, os, pathlib
found = {"overall_score": 0}
def tried(name, action):
    try:
        action()
        found[name] = True
    except OSError:
        found[name] = False
workspace = pathlib.Path(os.environ["WORKSPACE"])
tried("writes_workspace", lambda: (workspace / "x").write_text("x"))
tried("writes_task", lambda: pathlib.Path("x").write_text("x"))
tried("writes_scratch", lambda: pathlib.Path(os.environ["TMPDIR"], "x").write_text("x"))
tried("reads_home", lambda: pathlib.Path("HOME/houston.db").read_text())
print(json.dumps(found))
"""


async def test_an_evaluator_reads_both_folders_and_writes_neither(
    make_station: MakeStation, tmp_path: object
) -> None:
    station = await make_station(PRIVATE.replace("HOME", f"{tmp_path}/home"))
    fields = (await station("eval")).fields
    assert {name: fields[name] for name in fields if name.startswith(("writes", "reads"))} == {
        "writes_workspace": False,
        "writes_task": False,
        "writes_scratch": True,
        "reads_home": False,
    }


async def test_submissions_are_limited(make_station: MakeStation) -> None:
    station = await make_station(SCORE)
    station.evaluations = 2
    result = await station("eval")
    assert (result.kind, result.success) == ("error", False)
    assert "All 2 submissions are used" in result.text


async def test_a_task_without_evaluator_says_so(station: Station) -> None:
    result = await station("eval")
    assert (result.kind, "no evaluator" in result.text) == ("error", True)


async def test_changes_before_an_evaluation_still_belong_to_the_step(
    make_station: MakeStation,
) -> None:
    station = await make_station(SCORE)
    await station("run_command", command="echo fourth >> notes.txt; echo new > new.txt")
    await station("eval")
    await station("run_command", command="echo fifth >> notes.txt")
    closing = await station.environment.close_step(5)
    found = {one.path: (one.kind, one.added) for one in closing.files}
    assert found == {"notes.txt": ("changed", 2), "new.txt": ("added", 1)}


async def test_an_evaluation_waits_for_a_slot_and_tells_the_clock(
    make_station: MakeStation,
) -> None:
    station = await make_station(SCORE)
    told: list[bool] = []
    environment = make_environment(station.spec, station.task, waiting_for_slot=told.append)
    await environment.open()
    folder = station.folder / "root" / "evaluation-slots"
    folder.mkdir(exist_ok=True)
    held = os.open(folder / "trial.1", os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        evaluating = asyncio.create_task(
            environment.act(station.call("eval"), station.budget_status, Stop())
        )
        await asyncio.sleep(0.5)
        assert not evaluating.done()
        assert told == [True]
    finally:
        os.close(held)
    result = await evaluating
    await environment.close(ended=False)
    assert told == [True, False]
    assert result.fields["overall_score"] == 30.0


@pytest.mark.parametrize(("reason", "state"), [("wake", "scored"), ("interrupt", "failed")])
async def test_only_an_interrupt_ends_an_evaluation(
    make_station: MakeStation, reason: str, state: str
) -> None:
    station = await make_station(f"import time; time.sleep(2)\n{SCORE}")
    stop = Stop()

    async def speak() -> None:
        await asyncio.sleep(0.8)
        stop.reason = reason  # type: ignore[assignment]
        stop.event.set()

    speaking = asyncio.create_task(speak())
    result = await station("eval", stop=stop)
    await speaking
    assert result.fields["state"] == state


async def test_waiting_for_a_slot_ends_when_a_person_speaks(make_station: MakeStation) -> None:
    station = await make_station(SCORE)
    folder = station.folder / "root" / "evaluation-slots"
    folder.mkdir(exist_ok=True)
    held = os.open(folder / "trial.1", os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    stop = Stop(reason="wake")
    stop.event.set()
    try:
        result = await station("eval", stop=stop)
    finally:
        os.close(held)
    assert (result.fields["state"], result.fields["counted"]) == ("failed", False)
    assert "a person spoke" in result.text


READING = """
import json, os, pathlib
text = pathlib.Path(os.environ["WORKSPACE"], "notes.txt").read_text()
print(json.dumps({"overall_score": 100 if text == "42" else 1}))
"""
LINKS = [
    ("{task}/truth.txt", False),
    ("/proc/self/cwd/truth.txt", False),
    ("/proc/7/cwd/truth.txt", False),  # of a process that will be
    ("more/way/truth.txt", False),  # over another link
    ("/dev/null", True),  # to what everybody sees
    ("more/inside.txt", True),
]


async def test_a_link_leads_no_evaluator_to_its_own_files(make_station: MakeStation) -> None:
    """Also where the task names nothing as `required`: an agent would score the solutions."""
    station = await make_station(READING)
    (station.folder / "task" / "truth.txt").write_text("42")
    more, notes = station.workspace / "more", station.workspace / "notes.txt"
    more.mkdir()
    (more / "inside.txt").write_text("mine")
    for target, scored in LINKS:
        way = more / "way"
        way.symlink_to("/proc/self/cwd" if "way" in target else "inside.txt")
        notes.unlink()
        notes.symlink_to(target.format(task=station.folder / "task"))
        result = await station("eval")
        assert result.fields["overall_score"] == (1.0 if scored else None), (target, result.text)
        if not scored:
            assert "notes.txt" in result.text and "No submission was used" in result.text
        way.unlink()
