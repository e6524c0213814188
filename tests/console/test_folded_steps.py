"""`houston steps --fold`, and what it says where there is nothing to print."""

import msgspec
import pytest

from houston_shared import command
from houston_shared.records import FileChange
from tests.console.home_builder import HomeBuilder

TYPO = (("run_command", {"command": "python3 src/trian.py"}),)
FAILED = {"fields": {"exit_code": 2}, "seconds": 2.5}


def _fail(builder: HomeBuilder, step: int) -> None:
    builder.whole("r", step, "again", TYPO, ("No such file",), False, FAILED)


def _home(builder: HomeBuilder) -> None:
    change = FileChange(path="a.py", kind="changed", added=3, removed=1)
    edit = (("edit_file", {"path": "a.py"}),)
    with builder.bulk():
        builder.start("r")
        builder.scored("r", 1, "try", 40.0)
        for step in range(2, 151):
            _fail(builder, step)
        builder.say("r", "g", "look at the name")
        _fail(builder, 151)
        _fail(builder, 152)
        builder.whole("r", 153, "ah", edit, files=(change,), result={"seconds": 4.2})
        builder.scored("r", 154, "try", 61.5)
        builder.judged("r", 2, 13, "mask")


def _steps(capsys: pytest.CaptureFixture[str], builder: HomeBuilder, *words: str) -> list[str]:
    assert command.main(["steps", "r", *words, "--home", str(builder.home.path)]) == 0
    return capsys.readouterr().out.splitlines()


def test_equal_failures_are_one_line_over_every_page_that_is_read(
    builder: HomeBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    _home(builder)
    lines = [line.split() for line in _steps(capsys, builder, "--fold")]
    said = [" ".join([line[0], *line[3:]]) for line in lines]  # without the time
    assert said == [
        "1 submit score 40",
        "2–150 ✗ run_command python3 src/trian.py exit 2 ×149 mask (human) 12 of 149",
        "151 ✗ ✎ run_command python3 src/trian.py exit 2 2.5 s",
        "152 ✗ run_command python3 src/trian.py exit 2 2.5 s",
        "153 edit_file a.py +3 −1 4.2 s",
        "154 submit score 61.5 ▲",
    ]


def test_json_has_every_step_all_the_same(
    builder: HomeBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    _home(builder)
    lines = _steps(capsys, builder, "--fold", "--json", "--from", "140")
    assert lines == _steps(capsys, builder, "--json", "--from", "140")
    assert [msgspec.json.decode(line)["step"] for line in lines] == list(range(140, 155))


def test_a_whole_step_says_what_came_of_each_call(
    builder: HomeBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    _home(builder)
    lines = _steps(capsys, builder, "-n", "3", "--to", "153")
    assert "  → run_command command=python3 src/trian.py  exit 2  2.5 s" in lines
    assert "  → edit_file path=a.py  4.2 s" in lines


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(("--from", "9999"), "r has no step from 9999 on: steps 1 to 154 are there",
                     id="later than the last"),
        pytest.param(("--from", "200", "--to", "210"), "r has no step from 200 to 210: steps 1",
                     id="a range"),
        pytest.param(("--from", "9999", "--fold"), "r has no step from 9999 on", id="folded"),
        pytest.param(("--from", "9999", "--json"), "r has no step from 9999 on", id="json"),
    ],
)  # fmt: skip
def test_where_there_is_no_such_step_it_says_which_there_are(
    builder: HomeBuilder, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    _home(builder)
    assert command.main(["steps", "r", *words, "--home", str(builder.home.path)]) == 0
    printed = capsys.readouterr()
    assert printed.out == "" and said in printed.err


def test_a_rollout_without_a_step_says_so(
    builder: HomeBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    builder.start("r")
    assert _steps(capsys, builder) == []
    assert command.main(["steps", "r", "--home", str(builder.home.path)]) == 0
    assert "r has no closed step yet." in capsys.readouterr().err
