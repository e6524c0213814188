"""A new task works as it is; a wrong one is one sentence that names what is wrong."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.station import Station

RIGHT = [
    ["the", 56], ["and", 16], ["is", 14], ["craft", 13], ["it", 12],
    ["a", 11], ["that", 9], ["what", 9], ["station", 7], ["to", 6],
]  # fmt: skip


def score(task: Path, answer: Any) -> "subprocess.CompletedProcess[str]":
    """What the evaluator says of a workspace with this answer.json (None: without)."""
    workspace = task / "workspace"
    if answer is not None:
        (workspace / "answer.json").write_text(json.dumps(answer))
    environment = {**os.environ, "WORKSPACE": str(workspace)}
    return subprocess.run(
        ["python3", "evaluate.py"], cwd=task, env=environment, capture_output=True, text=True
    )


def test_a_new_task_has_an_evaluator_that_scores(station: Station) -> None:
    station.run("task", "new", "my-task", "--out", str(station.folder / "made"))
    for answer, expected in (
        (None, 0),
        ([], 0),
        (RIGHT[:3], 30),
        ([["zebra", 1]] * 10, 0),
        ([["the", 56]] * 10, 10),
        (RIGHT[::-1], 0),
        (RIGHT, 100),
    ):
        done = score(station.folder / "made" / "my-task", answer)
        assert json.loads(done.stdout)["overall_score"] == expected, answer


def test_an_answer_of_the_wrong_form_is_said_so(station: Station) -> None:
    station.run("task", "new", "my-task")
    done = score(station.folder / "my-task", {"the": 25})
    told = json.loads(done.stdout)
    assert told["overall_score"] == 0
    assert "one JSON list of [word, count] pairs" in told["problem"]


def test_a_new_task_can_be_started_as_it_is(station: Station) -> None:
    made = station.run("task", "new", "my-task")
    file = made.stdout.strip()
    (found,) = station.json("task", "validate", file)
    assert found["task"] == "my-task"
    assert "python3 evaluate.py" in found["evaluator"]
    assert found["workspace"] == "workspace/ (2 files)"
    assert "can be started" in station.run("task", "validate", "my-task").stdout


@pytest.mark.parametrize("name", ["My-Task", "-x", "a b", "../up", "x" * 41])
def test_a_name_that_is_none(station: Station, name: str) -> None:
    done = station.run("task", "new", "--", name, code=78)
    assert "allowed" in done.stderr
    assert list(station.folder.glob("**/task.toml")) == []


def test_a_folder_that_is_there_is_not_touched(station: Station) -> None:
    station.run("task", "new", "mine")
    (station.folder / "mine" / "task.toml").write_text("my work")
    assert "already exists" in station.run("task", "new", "mine", code=1).stderr
    assert (station.folder / "mine" / "task.toml").read_text() == "my work"


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("python3 missing.py", "missing.py"),
        ("no-such-program --now", "no-such-program"),
        ("./score.sh", "./score.sh"),
    ],
)
def test_an_evaluator_that_is_not_there(station: Station, command: str, names: str) -> None:
    task = station.task()
    task.write_text(task.read_text().replace("python3 evaluate.py", command))
    done = station.run("task", "validate", str(task), code=78)
    assert names in done.stderr
    assert str(task) in done.stderr


@pytest.mark.parametrize("command", ["cd tests && python3 score.py", "./evaluate.sh", ""])
def test_evaluators_of_other_forms(station: Station, command: str) -> None:
    task = station.task()
    (task.parent / "evaluate.sh").write_text("#!/bin/sh\n")
    (task.parent / "evaluate.sh").chmod(0o755)
    task.write_text(task.read_text().replace("python3 evaluate.py", command))
    station.run("task", "validate", str(task))


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ('tools = ["run_command", "fly"]', ["'fly'", "run_command"]),
        ('sandbox = { read = ["/no/such/models"] }', ["sandbox.read", "/no/such/models"]),
        ('sandbox = { read = ["models"] }', ["sandbox.read", "'models'", "absolute"]),
        ('sandbox = { devices = ["/dev/none"] }', ["sandbox.devices", "/dev/none"]),
        ('workspace = { source = "../elsewhere" }', ["workspace.source", "../elsewhere"]),
    ],
)
def test_what_a_task_names_must_be_there(station: Station, key: str, names: list[str]) -> None:
    (station.folder / "elsewhere").mkdir()
    folder = station.folder / "task"
    folder.mkdir()
    (folder / "task.toml").write_text(f'name = "t"\ninstructions = "Do it."\n{key}\n')
    for command in (["task", "validate"], ["rollout", "start"]):
        done = station.run(*command, str(folder), code=78)
        assert all(name in done.stderr for name in names), done.stderr


def test_what_other_machines_have_is_not_looked_for_here(station: Station) -> None:
    station.home.mkdir()
    (station.home / "houston.toml").write_text('[hosts.gpu]\nssh = "nobody@127.0.0.1"\n')
    task = station.task()
    there = (
        'hosts = ["gpu"]\nactivate = "/opt/no-such/env"\n'
        'sandbox = { read = ["/no/such/models"], devices = ["/dev/none"] }\n'
    )
    text = task.read_text().replace('sandbox = "bubblewrap"\n', "")
    task.write_text(there + text.replace("python3 evaluate.py", "no-such-python evaluate.py"))
    (found,) = station.json("task", "validate", str(task))
    assert found["evaluator"] == "no-such-python evaluate.py (on gpu)"
    wrong = {
        "/opt/no-such/env": "env",  # beside the task file, which is not what gpu has
        '"gpu"': '"gpu", "local"',
    }
    for good, bad in wrong.items():
        task.write_text((there + text).replace("python3 ", "no-such-python ").replace(good, bad))
        station.run("task", "validate", str(task), code=78)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('{"thought": "a"}\n\n{"calls": [{"name": 1}]}\n', "Line 3 of the script"),
        ('{"thought": "a"}\n{"thoughts": "b"}\n', "Line 2 of the script"),
        ("\n", "has no step"),
    ],
)
def test_a_script_is_read_whole_with_its_task(station: Station, text: str, names: str) -> None:
    task, script = station.task(), station.folder / "played.jsonl"
    script.write_text(text)
    done = station.run("task", "validate", str(task), "--engine", f"script:{script}", code=78)
    assert names in done.stderr
    assert str(script) in done.stderr


def test_the_script_of_the_configuration_is_read_with_a_task(station: Station) -> None:
    task, script = station.task(), station.folder / "played.jsonl"
    script.write_text('{"thought": "a"}\n')
    station.home.mkdir(exist_ok=True)
    (station.home / "houston.toml").write_text(
        'default_engine = "played"\n'
        f'[engines.played]\nkind = "script"\npath = "{script}"\n'
        '[engines.far]\nkind = "chat"\nurl = "http://127.0.0.1:9/v1"\n'
    )
    (found,) = station.json("task", "validate", str(task))
    assert found["engine"] == f"played ({script} can be played)"
    (found,) = station.json("task", "validate", str(task), "--engine", "far")
    assert found["engine"] == "far (kind chat, not asked)"
    script.write_text("no step")
    assert "Line 1 of" in station.run("task", "validate", str(task), code=78).stderr
