"""What `houston task validate` finds in a task file, and what it finds by running the evaluator."""

from pathlib import Path

import pytest

from houston_shared.task import load_task
from tests.support.station import Station

BAD = [
    ('domain = "alchemy"', "domain"),
    ('activate = "nowhere"', "`activate`"),
    ('[data.mounts]\nwords = "nowhere"', "`data.mounts.words`"),
    ('[data.mounts]\n"../x" = "workspace"', "data"),
    ("[evaluate]\ncommand = 'true'\nbaseline = 1.0", "`evaluate.reference`"),
    ("[evaluate]\ncommand = 'true'\nbaseline = 1.0\nreference = 1.0", "two different numbers"),
    ("[evaluate]\ncommand = 'true'\nrequired = ['../../etc']", "not a path in the workspace"),
    ("[evaluate]\ncommand = 'true'\nhost = 'far'", "not one of `hosts` (local)"),
    ("[evaluate]\nformat = 'true'", "no `command`"),
    ("[budget]\nevaluation_seconds = -1", "evaluation_seconds"),
    ('sandbox = "none"\n[data.mounts]\nwords = "workspace"', "needs the sandbox"),
    ('[data.mounts]\nwords = "../home/words"', "must not see"),
]


@pytest.mark.parametrize(("text", "cause"), BAD, ids=[row[0][:40] for row in BAD])
def test_what_is_wrong_is_named(station: Station, text: str, cause: str) -> None:
    folder = station.folder / "task"
    (folder / "workspace").mkdir(parents=True)
    (station.home / "words").mkdir(parents=True)
    (folder / "task.toml").write_text(f'name = "t"\ninstructions = "x"\n{text}\n')
    done = station.run("task", "validate", "task", code=78)
    assert cause in done.stderr


def test_an_evaluator_can_be_tried_on_any_folder(station: Station) -> None:
    task = station.task("probe", budget="evaluations = 0")
    text = task.read_text().replace("[evaluate]", '[evaluate]\nrequired = ["answer.txt"]')
    task.write_text(f'domain = "loss-design"\n{text}')
    done = station.run("task", "validate", "--run", str(task), code=1)
    assert "lacks answer.txt" in done.stdout, "a word after --run may be the task"
    assert "houston task validate FILE" in station.run("task", "validate", code=2).stderr
    (station.folder / "mine").mkdir()
    (station.folder / "mine/answer.txt").write_text("42\n")
    (told,) = station.json("task", "validate", str(task), "--run", "mine")
    assert "overall_score: 100 of 100" in told["evaluation"]
    assert (told["domain"], told["required"]) == ("loss-design", "answer.txt")
    assert not (station.folder / "mine/__pycache__").exists()
    assert not list(Path("/tmp").glob("houston-trial-*/rollouts/trial/workspace/answer.txt"))


def test_what_of_an_environment_is_not_run_is_said(station: Station) -> None:
    task = station.task()
    for folder in ("conda-meta", "bin", "etc/conda/activate.d"):
        (task.parent / "env" / folder).mkdir(parents=True)
    (task.parent / "env/etc/conda/activate.d/cuda.sh").write_text("export CUDA_HOME=/x\n")
    task.write_text('activate = "env"\n' + task.read_text())
    (told,) = station.json("task", "validate", str(task))
    assert told["activate"].startswith("env (not run: cuda.sh;")


def test_a_script_is_held_against_the_tools(station: Station) -> None:
    task = station.task("probe")
    calls = [("sleep_time", {}), ("run_command", {"cmd": "ls"}), ("think", {"thought": "x"})]
    steps = [{"calls": [{"name": name, "arguments": given}]} for name, given in calls]
    engine = station.script(steps)
    done = station.run("task", "validate", str(task), "--engine", engine)
    warned = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert len(warned) == 2, done.stderr
    assert "step 1: There is no tool 'sleep_time'" in warned[0]
    assert "step 2: run_command has no argument" in warned[1]
    assert "run_command, input_in_session" in done.stdout


def test_hints_are_shown_only_where_somebody_asks(station: Station) -> None:
    task = station.task("hinted")
    task.write_text(task.read_text() + '\n[hints]\ntext = "Look at line 3."\n')
    loaded = load_task(task)
    assert "line 3" not in loaded.record().instructions
    asked = loaded.record(hints=True).instructions
    assert asked.endswith("\n\nHints:\nLook at line 3.")
    task.write_text(task.read_text() + "shown = true\n")
    assert load_task(task).record().instructions == asked
