"""Packaged research tasks: what is given scores 0, the reference 100, and agents see neither it nor
the held-out data."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import get_args

import pytest

from houston_daemon.commands.task_commands import TEMPLATES
from houston_daemon.environments.environment_protocol import BudgetStatus, Environment, Stop
from houston_daemon.environments.environment_registry import make_environment
from houston_daemon.environments.workstation.evaluator import read_score
from houston_shared.records import RolloutSpec, ToolCall, ToolResult
from houston_shared.task import LoadedTask, load_task
from houston_shared.task_tables import TaskDomain
from tests.support.terminals import end_terminals
from tests.support.tiers import sampled

RESEARCH = {
    task.task.name: task
    for task in map(load_task, sorted(file.parent for file in TEMPLATES.glob("*/task.toml")))
    if task.task.domain
}
QUIET = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
SOLUTION = "/proc/self/cwd/held_out/test.jsonl"
"""Where a link leads to what an evaluator compares with, once the evaluator follows it."""
NONSENSE = (
    b"nonsense",
    b"",
    b'{"a": 1}\n',
    b"[1, 2, 2]",
    b"__import__('os')",
    b"\x00\xff",
    b"[" * 9_999,
)


def test_every_domain_of_research_has_a_task() -> None:
    assert {task.task.domain for task in RESEARCH.values()} == set(get_args(TaskDomain)) - {""}


class Trial:
    """One rollout of a packaged task on the local host."""

    def __init__(self, folder: Path, task: LoadedTask) -> None:
        self.task = task
        self.folder = folder
        self.workspace = folder / "root" / "rollouts" / "r1" / "workspace"
        spec = RolloutSpec(
            rollout="r1",
            task=task.record(),
            engine="script:x",
            engine_settings={},
            host_root=str(folder / "root"),
        )
        self.environment: Environment = make_environment(spec, task.task)

    async def __call__(self, name: str, **arguments: object) -> ToolResult:
        call = self.environment.check(ToolCall(id="5.1", name=name, arguments=arguments))
        budget_status = BudgetStatus(5, 100, 1_000.0, 0)
        return await self.environment.act(call, budget_status, Stop())

    @property
    def submission(self) -> Path:
        (name,) = self.task.task.evaluate.required
        return self.workspace / name


@pytest.fixture
async def trial(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Trial]:
    made = Trial(tmp_path, RESEARCH[request.param])
    await made.environment.open()
    yield made
    await made.environment.close(ended=True)
    end_terminals(tmp_path / "root")


def solved(trial: Trial) -> bytes:
    """The submission of the reference solution, made in a copy of the workspace."""
    copy = trial.folder / "copy"
    shutil.copytree(trial.task.folder / "workspace", copy)
    solve = trial.task.folder / "reference" / "solve.py"
    subprocess.run([sys.executable, solve, copy], check=True, timeout=60, env=QUIET)
    return (copy / trial.submission.name).read_bytes()


@pytest.mark.parametrize("trial", sampled(RESEARCH, 2), indirect=True)
async def test_the_scale_goes_from_what_is_given_to_the_reference(trial: Trial) -> None:
    given = await trial("eval")
    assert given.fields["overall_score"] == 0, given.text
    assert given.fields["raw_score"] == trial.task.task.evaluate.baseline
    trial.submission.write_bytes(solved(trial))
    best = await trial("eval")
    assert best.fields["overall_score"] == 100, best.text
    assert best.fields["raw_score"] == trial.task.task.evaluate.reference
    trial.submission.write_bytes(NONSENSE[0])
    refused = await trial("eval")
    assert (refused.fields["state"], refused.fields["counted"]) == ("format", False)
    assert trial.submission.name in refused.text
    trial.submission.unlink()
    trial.submission.symlink_to(SOLUTION)
    linked = await trial("eval")
    assert (linked.fields["state"], linked.fields["counted"]) == ("format", False)
    assert "Links of the workspace lead to the evaluator's own files" in linked.text
    seen = await trial("run_command", command=LOOK.format(folder=trial.task.folder))
    assert seen.success, seen.text
    assert "hidden" in seen.text


async def test_a_task_below_what_is_mapped_is_its_evaluators_alone(tmp_path: Path) -> None:
    """As packaged tasks are where Houston is installed below /usr."""
    folder = tmp_path / "models" / "trial"
    shutil.copytree(RESEARCH["design-loss"].folder, folder)
    file = folder / "task.toml"
    file.write_text(file.read_text() + READ.format(tmp_path / "models"))
    trial = Trial(tmp_path, load_task(folder))
    await trial.environment.open()
    try:
        assert (await trial("eval")).fields["overall_score"] == 0
        seen = await trial("run_command", command=f"ls -a {folder}; ls {folder.parent}")
        assert "held_out" not in seen.text
        assert "trial" in seen.text
    finally:
        await trial.environment.close(ended=True)
        end_terminals(tmp_path / "root")


READ = """[sandbox]
kind = "bubblewrap"
read = ["{}"]
"""


@pytest.mark.parametrize("name", sampled(RESEARCH, 2))
def test_nonsense_is_told_in_a_sentence(name: str, tmp_path: Path) -> None:
    evaluate = RESEARCH[name].task.evaluate
    submission = tmp_path / evaluate.required[0]
    for text in (*NONSENSE, SOLUTION):
        submission.unlink(missing_ok=True)
        if isinstance(text, bytes):
            submission.write_bytes(text)
        else:
            submission.symlink_to(text)
        done = subprocess.run(
            [sys.executable, *evaluate.format.split()[1:]],
            cwd=RESEARCH[name].folder, timeout=60, check=False,
            env={**QUIET, "WORKSPACE": str(tmp_path)}, capture_output=True, text=True,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (1, ""), text
        assert done.stdout.startswith(f"{evaluate.required[0]} cannot be used: "), text


@pytest.mark.parametrize("text", [*NONSENSE, b"[[]]", b'[["a", "b"]]', b'[["a", 1e999]]', b"7"])
def test_the_first_task_scores_nonsense_and_says_what_is_wrong(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "answer.json").write_bytes(text)
    done = subprocess.run(
        [sys.executable, TEMPLATES / "count-words" / "evaluate.py"], timeout=60, check=True,
        env={**QUIET, "WORKSPACE": str(tmp_path)}, capture_output=True,
    )  # fmt: skip
    score, metrics = read_score(done.stdout)
    assert score == 0
    assert metrics["problem"].startswith("answer.json must hold one JSON list")


LOOK = (
    "test ! -e {folder} && find / -xdev \\( -name solve.py -o -name held_out -o -name make_data.py"
    " \\) -not -path '/proc/*' 2>/dev/null | grep . || echo hidden"
)


@pytest.mark.parametrize("name", sampled(RESEARCH, 2))
def test_the_data_is_what_its_script_writes(name: str, tmp_path: Path) -> None:
    source, copy = RESEARCH[name].folder, tmp_path / "copy"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, copy / "make_data.py"], check=True, timeout=60, env=QUIET)
    for file in source.rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            assert (copy / file.relative_to(source)).read_bytes() == file.read_bytes(), file


def test_the_readme_tells_their_figures() -> None:
    text = (TEMPLATES / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z-]+)` \|.*\| ([\d.]+ \| [\d.]+) \|$", text, re.M))
    ends = {name: task.task.evaluate for name, task in RESEARCH.items()}
    wanted = {name: f"{each.baseline} | {each.reference}" for name, each in ends.items()}
    assert rows == wanted
