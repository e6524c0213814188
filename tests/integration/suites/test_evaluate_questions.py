"""`houston evaluate` on question files: scored by mathematics, choices and hidden tests in a real
sandbox, and without what was trained on."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.training.policies.lineage_texts import task_text
from houston_shared.home import Home
from houston_shared.store.store_reader import Reader
from tests.support.station import Station
from tests.unit.suites.test_question_files import AIME, GPQA, lines, livecodebench

SUM = "a, b = map(int, input().split())\nprint(a + b)"
NUMBERS = itertools.count()
METHOD = "class Solution:\n    def add(self, a, b):\n        return a + b"


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    made = Station(tmp_path_factory.mktemp("questions"))
    made.start()
    yield made
    made.clear()


def answering(station: Station, *texts: str) -> str:
    """An engine that answers so."""
    calls = [{"name": "answer", "arguments": {"text": text}} for text in texts]
    steps = [{"thought": "", "calls": [call], "delay": 0.0} for call in calls]
    return station.script(steps, f"answering-{next(NUMBERS)}")


def evaluated(station: Station, file: Path, engine: str, *words: str) -> dict[str, Any]:
    (report,) = station.json("evaluate", str(file), "--engine", engine, *words)
    return dict(report)


@pytest.mark.parametrize(
    ("row", "answer", "score"),
    [
        (AIME, r"The answer is $\frac{408}{2}$.", 100.0),
        (AIME, "205", 0.0),
        (GPQA, "Thymine", 100.0),
        (GPQA, "Guanine", 0.0),
        ({"question": "Who?", "answers": ["Ada"]}, "ada", 100.0),
        (livecodebench(), f"```python\n{SUM}\n```", 100.0),
        (livecodebench(), "print(3)", 0.0),
        (livecodebench(), "import os; print(open(os.listdir('/tmp')[0]).read())", 0.0),
        (livecodebench(), "while True: pass", 0.0),
        (livecodebench(), "no program at all", 0.0),
    ],
    ids=[
        "mathematics", "another number", "a choice by its text", "another choice", "a text",
        "a program", "right on the public test only", "looks for the answers", "does not end",
        "no program",
    ],
)  # fmt: skip
def test_an_answer_is_scored_as_its_file_asks(
    station: Station,
    tmp_path: Path,
    row: dict[str, Any],
    answer: str,
    score: float,
) -> None:
    file = lines(tmp_path, row)
    report = evaluated(
        station, file, answering(station, answer), "--name", f"result-{next(NUMBERS)}"
    )
    assert report["after"]["worlds"] == 1 and report["after"]["unfinished"] == 0
    assert report["after"]["score"]["value"] == score
    kept = json.loads(Path(report["files"][0]).read_text())
    rollout = kept["worlds"][0]["attempts"][0]["rollout"]
    for shown in (station.run("steps", rollout, "--json"), station.run("context", rollout, "1")):
        assert "5 6" not in shown.stdout, "hidden tests are never shown"


SEARCH = """
import os, pathlib
system = ("/dev", "/proc", "/sys", "/usr", "/opt", "/lib", "/bin", "/sbin", "/etc")
for folder, below, names in os.walk("/"):
    below[:] = [
        name for name in below
        if not os.path.join(folder, name).startswith(system)
        and name not in ("site-packages", "lib")
    ]
    for name in names:
        try:
            text = pathlib.Path(folder, name).read_bytes()
        except OSError:
            continue
        if b"7717" + b"3391" in text:
            print("found", folder, name)
print("searched")
"""


def test_code_of_the_agent_finds_no_hidden_test(station: Station, tmp_path: Path) -> None:
    """Neither before it answers nor in the program that is tested."""
    hidden = [{"input": "77173391 0", "output": "77173391"}]
    file = lines(tmp_path, livecodebench(private_test_cases=json.dumps(hidden)))
    steps = [
        {"thought": "", "calls": [{"name": "code", "arguments": {"code": SEARCH}}], "delay": 0.0},
        {"thought": "", "calls": [{"name": "answer", "arguments": {"text": SUM}}], "delay": 0.0},
    ]
    report = evaluated(station, file, station.script(steps, "searching"))
    assert report["after"]["score"]["value"] == 100.0
    kept = json.loads(Path(report["files"][0]).read_text())
    step = station.steps(kept["worlds"][0]["attempts"][0]["rollout"])[0]
    assert step["observation"].startswith("searched\n")


@pytest.mark.parametrize(
    "program",
    [
        "print(sum(map(int, open(0).read().split())))",
        "import os\nprint(sum(map(int, os.read(0, 99).split())))",
        "import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))",
        "numbers: List[int] = [int(word) for word in input().split()]\nprint(reduce(add, numbers))",
        "def deep(n):\n    return n and 1 + deep(n - 1)\n"
        "print(deep(20000) - 20000 + sum(map(int, input().split())))",
        "if __name__ == '__main__':\n    print(sum(map(int, input().split())))\n    exit()",
    ],
    ids=["open(0)", "os.read", "bytes", "names that are not imported", "recursion", "main"],
)
def test_programs_are_run_as_livecodebench_runs_them(
    station: Station, tmp_path: Path, program: str
) -> None:
    report = evaluated(
        station, lines(tmp_path, livecodebench()), answering(station, program),
        "--name", f"result-{next(NUMBERS)}",
    )  # fmt: skip
    assert report["after"]["score"]["value"] == 100.0


def test_a_method_is_called_with_the_arguments_of_each_test(
    station: Station, tmp_path: Path
) -> None:
    row = livecodebench(
        starter_code="class Solution:\n    def add(self, a, b):",
        metadata=json.dumps({"func_name": "add"}),
        public_test_cases=json.dumps([{"input": "1\n2", "output": "3"}]),
        private_test_cases=json.dumps([{"input": "[1]\n[2]", "output": "[1, 2]"}]),
    )
    report = evaluated(station, lines(tmp_path, row), answering(station, METHOD))
    assert report["after"]["score"]["value"] == 100.0


def test_what_was_trained_on_is_dropped_and_listed(station: Station, tmp_path: Path) -> None:
    rows = [
        {**AIME, "ID": "old", "Problem": "Find the 204th prime above one thousand."},
        {**AIME, "ID": "new", "Problem": "Find the sum of the first 17 odd cubes."},
    ]
    file = lines(tmp_path, *rows)
    trained = lines(
        tmp_path, {"question": "find THE $204$th prime above one thousand", "answers": ["x"]},
        name="trained.jsonl",
    )  # fmt: skip
    engine = answering(station, "204")
    report = evaluated(station, file, engine, "--against", str(trained))
    assert report["after"]["worlds"] == 1
    assert report["dropped"] == [{"id": "old", "where": f"{trained}: 1", "why": "text"}]
    words = ("evaluate", str(trained), "--against", str(trained), "--engine", engine)
    assert "were trained on" in station.run(*words, code=1).stderr


@pytest.mark.parametrize("row", [AIME, {"question": "Who?", "answers": ["204"]}])
def test_of_a_rollout_its_question_is_compared_and_no_budget(
    station: Station, tmp_path: Path, row: dict[str, Any]
) -> None:
    """Steps, hours and instructions have numbers and words of their own."""
    report = evaluated(
        station, lines(tmp_path, row), answering(station, "204"),
        "--name", f"result-{next(NUMBERS)}",
    )  # fmt: skip
    kept = json.loads(Path(report["files"][0]).read_text())
    with Reader(Home(station.home)) as reader:
        text = task_text(reader, kept["worlds"][0]["attempts"][0]["rollout"])
    assert text == row.get("Problem", row.get("question"))


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (None, "cannot be read: No such file"),
        ("{", "line 1: no JSON"),
        ('{"prompt": 1}', "match no known kind"),
        ("", "has no question"),
    ],
)
def test_a_file_that_is_none_is_refused(
    station: Station, tmp_path: Path, content: str | None, cause: str
) -> None:
    file = tmp_path / "set.jsonl"
    if content is not None:
        file.write_text(content)
    code = 66 if content is None else 2
    said = station.run("evaluate", str(file), code=code)
    assert cause in said.stderr
