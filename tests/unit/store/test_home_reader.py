"""A home read from Python: what a notebook gets, and that docs/notebook.md runs as it stands."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import houston_shared
from houston_daemon.recorder.journal_writer import EventKey
from houston_shared.errors import HoustonError
from houston_shared.home_reader import COLUMNS, STEPS_PER_READ, TIME_COLUMNS, StepVerdict
from houston_shared.records import ContextHead, ToolCall
from houston_shared.store.event_bodies import VerdictGiven
from tests.support.written_home import WrittenHome, sample

PAGE = Path(__file__).parents[3] / "docs" / "notebook.md"
HEAD = ContextHead(
    system="s", task="t", tools=(), rendered="", token_ids=(1, 2, 3), dialect="chatml-json",
    tokenizer="/nowhere/tokenizer.json",
)  # fmt: skip
STEPS = STEPS_PER_READ + 5
"""More than one read holds."""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[WrittenHome]:
    """Two rollouts whose writer goes on, as a daemon does: of `words-a` step 2 is masked and heard
    a word, `words-b` has more steps than are read at once, the last one open."""
    written = WrittenHome(tmp_path / "home")
    written.rollout("words-a", state="finished")
    written.head("words-a", HEAD)
    call = ToolCall(id="1.0", name="list_files", arguments={})
    parent, kept = None, 0
    for step in (1, 2):
        body = sample(
            f"thought {step}", parent_seq=parent, kept=kept, new_prompt_ids=(1, 2, 3),
            token_ids=(10, 11), logprobs=(-1.0, -2.0), logprob_kind="policy", calls=(call,),
            drift="clean" if parent else "forked",
        )  # fmt: skip
        parent, kept = written.step("words-a", step, body, ("ok",)), kept + 5
    written.guide("words-a", "g1", "Read README.md first.")
    written.deliver("words-a", 2, "g1")
    for said in (
        VerdictGiven(last=2, verdict="keep", by="big", source="judge"),
        VerdictGiven(last=2, verdict="mask", by="ada", reason="a blind edit"),
    ):
        written.event(EventKey("words-a", 2), "verdict", said)
    written.rollout("words-b")
    for step in range(1, STEPS + 1):
        written.step("words-b", step, sample(f"thought {step}"), open=step == STEPS)
    yield written
    written.close()


def test_records_come_typed_and_in_order_while_somebody_writes(home: WrittenHome) -> None:
    with houston_shared.open(home.home.path) as read:
        assert sorted(row.id for row in read.rollouts()) == ["words-a", "words-b"]
        assert [row.id for row in read.rollouts(state="finished")] == ["words-a"]
        steps = read.steps("a")  # a unique ending is enough
        assert next(steps).sample.thought == "thought 1"
        home.step("words-a", 3)  # nothing that is read stands in the way
        assert [step.step for step in steps] == [2]
        (heard,) = next(read.steps("words-a", 2, 2)).guidance
        assert heard.text == "Read README.md first."
        numbers = [step.step for step in read.steps("words-b")]
        assert numbers == list(range(1, STEPS + 1))
        assert next(read.steps("words-b", STEPS)).observation is None
        assert [said.step for said in read.guidance()] == [2]


def test_of_several_verdicts_the_one_that_counts_is_marked(home: WrittenHome) -> None:
    with houston_shared.open(home.home.path) as read:
        first, second = read.verdicts()
    assert isinstance(first, StepVerdict)
    assert (first.by, first.verdict, first.reason, first.counts) == (
        "ada", "mask", "a blind edit", True,
    )  # fmt: skip
    assert (second.by, second.counts) == ("big", False)


def test_rows_are_those_of_an_export(home: WrittenHome) -> None:
    with houston_shared.open(home.home.path) as read:
        rows = list(read.rows("words-a"))
        assert {row.rollout for row in rows} == {"words-a"}
        assert sum(row.sampled for row in rows) == 4
        assert sum(row.trained for row in rows) == 2  # step 2 is masked
        assert sum(row.trained for row in read.rows("words-a", masking=False)) == 4
        (chat,) = read.rows("words-a", messages=True)
        assert [message.weight for message in chat.messages if message.step] == [1.0, 0.0, 0.0]


def test_nothing_can_be_written(home: WrittenHome) -> None:
    before = home.home.database.read_bytes()
    with houston_shared.open(home.home.path) as read:
        connection = read._reader.open()._connection()
        with pytest.raises(Exception, match="readonly"):
            connection.execute("DELETE FROM events")
    assert home.home.database.read_bytes() == before


def test_frames_have_the_keys_of_json_and_times(home: WrittenHome) -> None:
    pandas = pytest.importorskip("pandas", reason="of the extra notebook; `make test` brings it")
    with houston_shared.open(home.home.path) as read:
        steps = read.frame("steps")
        assert list(steps.groupby("rollout").size()) == [2, STEPS]
        assert steps[steps.rollout == "words-a"].verdict.tolist()[1] == "mask"
        assert isinstance(steps["at"].dtype, pandas.DatetimeTZDtype)
        assert read.frame("verdicts", "words-a").counts.tolist() == [True, False]
        assert read.frame("rows", "words-a").trained.sum() == 2
        assert read.frame("policies").empty
        scores = read.frame("rollouts").best_score
        assert scores.isna().all() and scores.dtype == float, "no score is no number, not no column"
        assert read.frame("rollouts", state="finished").rollout.tolist() == ["words-a"]


def test_an_empty_home_has_tables_with_the_same_columns(home: WrittenHome, tmp_path: Path) -> None:
    """So what a notebook does with a table it also does on the first day."""
    pytest.importorskip("pandas", reason="of the extra notebook; `make test` brings it")
    WrittenHome(tmp_path / "new").close()
    home.insert(
        "policies", name="p@1", family="p", number=1, kind="base", base="/m", base_hash="b",
        hash="h", folder="", parent="", run="", manifest="", seq=1, created_at=1,
    )  # fmt: skip
    with houston_shared.open(tmp_path / "new") as new, houston_shared.open(home.home.path) as read:
        assert repr(new) == f"<home {tmp_path / 'new'}>"
        for table in COLUMNS:
            empty, filled = new.frame(table), read.frame(table, **ONE.get(table, {}))
            assert list(empty.columns) == COLUMNS[table].split()
            assert empty.empty and not filled.empty
            assert list(filled.columns)[: len(empty.columns)] == list(empty.columns)
            times = TIME_COLUMNS & set(empty.columns)
            assert {name: empty[name].dtype.kind for name in times} == dict.fromkeys(times, "M")
        verdicts = new.frame("verdicts")
        assert verdicts[verdicts.counts].groupby(["source", "verdict"]).size().empty
        assert new.frame("steps").groupby("rollout")["active_seconds"].max().empty


ONE: dict[str, dict[str, Any]] = {"rows": {"rollout": "words-a", "messages": True}}
"""Of a table, what can be read of this home: the ids of `words-b` have no dialect."""


def test_what_is_not_there_is_said(home: WrittenHome, tmp_path: Path) -> None:
    with houston_shared.open(home.home.path) as read:
        with pytest.raises(HoustonError, match="There is no rollout 'nobody'"):
            list(read.steps("nobody"))
        with pytest.raises(HoustonError, match="There is no table 'step'; there are: rollouts"):
            read.frame("step")
        with pytest.raises(HoustonError, match="There is no state 'finishd'") as problem:
            read.rollouts(state="finishd")
        assert problem.value.next == "did you mean finished?"
        assert read.rollout("words-a").id == "words-a"
    with pytest.raises(HoustonError, match="There is no database in the home"):
        houston_shared.open(tmp_path / "nowhere")


def run_python(code: str, home: WrittenHome) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HOUSTON_HOME": str(home.home.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_without_pandas_one_sentence_says_what_to_install(home: WrittenHome) -> None:
    code = (
        "import sys; sys.modules['pandas'] = None\nimport houston_shared\n"
        "houston_shared.open().frame('steps')"
    )
    said = run_python(code, home).stderr.splitlines()[-1]
    assert "pandas, which is not installed" in said
    assert said.endswith("pip install 'houston-agents[notebook]'")


def test_the_package_costs_nothing_until_a_home_is_opened(home: WrittenHome) -> None:
    code = "import sys, houston_shared; print({'msgspec', 'sqlite3', 'pandas'} & set(sys.modules))"
    assert run_python(code, home).stdout.strip() == "set()"


def test_the_examples_of_the_page_run(home: WrittenHome) -> None:
    pytest.importorskip("pandas", reason="of the extra notebook; `make test` brings it")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    run = run_python("".join(blocks), home)
    assert run.returncode == 0, run.stderr
    assert "2 ['list_files'] ['Read README.md first.']" in run.stdout
    assert "masked because: {'a blind edit'}" in run.stdout
    assert re.search("rows that would be trained: [1-9]", run.stdout)
