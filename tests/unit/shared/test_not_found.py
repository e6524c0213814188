"""What was named and is not there ends every command with one exit code, whatever kind it is of."""

import re
import shlex
from pathlib import Path

import pytest

from houston_shared.command import main
from houston_shared.command_table import COMMANDS, CommandSpec
from houston_shared.errors import ExitCode
from tests.support.written_home import WrittenHome, sample

NAMED_IN_EXAMPLES = re.compile(r"k3f9|policy@2|count-words/task\.toml|jobs/today")
"""Rollouts, runs, a policy, a task file that the home here has not."""
ASKS_THE_DAEMON_FIRST = {
    ("rollout", "import"),
    ("policy", "activate"),
}
"""What they say of a name is in tests/integration/recorder/test_unknown_names.py."""
RUNS_WITHOUT = {
    ("tail",): "--task only filters",
    ("evaluate",): "its suite is there; the engine of its example is not (KINDS)",
}
EXAMPLES = [
    pytest.param(command, id=" ".join(command.words))
    for command in COMMANDS
    if NAMED_IN_EXAMPLES.search(command.example) and command.words not in RUNS_WITHOUT
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one rollout of one step."""
    folder = tmp_path_factory.mktemp("found") / "home"
    written = WrittenHome(folder)
    written.rollout("words-aaaa")
    written.step("words-aaaa", 1, sample("x"))
    written.close()
    return folder


@pytest.fixture(autouse=True)
def _seated(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At that home, in a folder in which nothing lies."""
    monkeypatch.setenv("HOUSTON_HOME", str(home))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", EXAMPLES)
def test_every_command_that_names_something(
    command: CommandSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = [*command.words, *shlex.split(command.example)]
    expected = ExitCode.NOT_FOUND
    if command.words in ASKS_THE_DAEMON_FIRST:
        expected = ExitCode.DAEMON_NOT_RUNNING
    assert main(typed) == expected, capsys.readouterr().err


KINDS = {
    "a rollout": "rollout show nope",
    "a step": "steps words@9",
    "a step, whole": "context words@9",
    "a step of a page": "rollout html words@9",
    "a step of the console": "console words@9",
    "a step to erase": "rollout erase words@9 --reason x --yes",
    "a step to restore": "rollout restore words@9 --out there",
    "guidance": "guidance words --withdraw nope",
    "a draft": "guidance words --accept nope",
    "a policy": "policy merge nope@2 --out merged",
    "a training run": "train show nope",
    "a training run of ECHO": "train drift nope",
    "a training run of a critic": "train usefulness nope",
    "a training run to go on with": "train sft --resume nope",
    "a recipe of a training": "train sft words --recipe nope",
    "a recipe of an export": "export words --recipe nope --format trl",
    "a recipe of an experiment": "experiment nope --out measured",
    "a suite": "suite run nope",
    "a suite to serve": "env serve nope",
    "a suite to evaluate on": "evaluate nope",
    "a suite's run": "label --suite-run nope",
    "a result": "evaluate --compare before after",
    "an engine": "engine check nope",
    "an engine of a suite": "suite run word-worlds --engine nope",
    "an engine of a critic": "critique words --engine nope",
    "an engine's log": "daemon logs --engine nope",
    "a task file": "task validate nope/task.toml",
    "a task of others": "task import nope.yaml",
    "a corpus": "ask x --corpus nope",
    "questions": "evaluate nope.jsonl",
    "a backup": "backup --restore nope",
    "a home": "--home nope rollout list",
    "a home to repair": "--home nope repair",
    "a configuration": "--config nope.toml rollout list",
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_thing(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(shlex.split(KINDS[kind]))
    said = capsys.readouterr().err
    assert code == ExitCode.NOT_FOUND, said
    assert "This is a bug" not in said


def test_a_name_of_several_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = WrittenHome(tmp_path / "two")
    for rollout in ("words-aaaa", "words-bbbb"):
        home.rollout(rollout)
    home.close()
    assert main(["--home", str(tmp_path / "two"), "rollout", "show", "words"]) == ExitCode.USAGE
    assert "2 rollouts begin with 'words'" in capsys.readouterr().err
