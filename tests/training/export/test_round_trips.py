"""What the readers of our files read back, whatever texts and arguments there are."""

import io
import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from houston_daemon.training.export import trl_format
from houston_daemon.training.export.export_line_builder import LineBuilder
from houston_daemon.training.export.export_run import FORMATS
from houston_daemon.training.rows.training_row import ChatRow, TokenRow
from tests.support.synthetic_rows import made
from tests.training.export.chat_rows import step, talk
from tests.training.export.writing import ROW_FORMATS, lines, written

HOSTILE = (
    "", " ", "\x00", "文😀🏳️‍🌈", "\u2028\u2029\x85", "\r\n", "</real_user>", '{"a": 1}', "null",
    "<|im_end|>", "\ufeff", "e\u0301" * 9, "[1, 2]", "\x1b]52;c;eA==\x07", "\\ud800", "2026-11-20",
)  # fmt: skip
TEXT = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=12))
FLOATS = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False)
SHORT = st.integers(-(10**9), 10**9).map(lambda number: number / 1000)
"""Numbers with three decimals."""


def values(floats: Any) -> Any:
    numbers = st.one_of(st.integers(-(2**63), 2**64 - 1), floats)
    return st.recursive(
        st.one_of(st.none(), st.booleans(), numbers, TEXT),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)
        ),
        max_leaves=6,
    )


@st.composite
def talks(draw: Any, floats: Any = FLOATS) -> ChatRow:
    arguments = st.lists(st.dictionaries(TEXT, values(floats), max_size=3), max_size=2)
    drawn_step = st.tuples(TEXT, arguments, TEXT, st.sampled_from([0.0, 1.0]))
    steps = draw(st.lists(drawn_step, min_size=1, max_size=3))
    return talk(
        *(step(n, t or "x", a, r, weight=w) for n, (t, a, r, w) in enumerate(steps, 1)),
        step(9, "end"),
        id=f"r-{draw(st.integers(1, 9))}/0.0",
    )


@st.composite
def rows(draw: Any) -> TokenRow:
    answers = draw(st.lists(st.tuples(st.integers(1, 9), st.sampled_from([0.0, 1.0])), max_size=4))
    return made([*answers, (2, 1.0)], head=draw(st.integers(1, 9)), task=draw(TEXT) or "probe")


def any_rows(format: str, floats: Any = FLOATS) -> Any:
    drawn_row = rows() if FORMATS[format].unit == "ids" else talks(floats)
    return st.lists(drawn_row, min_size=1, max_size=4)


def made_of(name: str, rows: list[Any]) -> tuple[list[Any], int]:
    """Lines of rows without weight on answers that would become tokens; how many those are."""
    building = LineBuilder(FORMATS[name])
    clean = [
        building._without_wrong_answers(row) if isinstance(row, ChatRow) else row for row in rows
    ]
    return [line for row in clean for line in FORMATS[name].lines(row)], len(building.refused)


def read_back(file: Path) -> list[Any]:
    """Its lines, of JSON or of an Arrow stream."""
    if file.suffix != ".arrow":
        return lines(file)
    pyarrow = pytest.importorskip("pyarrow")
    with pyarrow.ipc.open_stream(file.read_bytes()) as stream:
        return list(stream.read_all().to_pylist())


@pytest.mark.parametrize("name", ROW_FORMATS)
@given(data=st.data())
@settings(max_examples=25)
def test_lines_are_what_was_made_of_the_rows(name: str, data: Any) -> None:
    """Of every row either all lines are there, as the format made them, or it is said why not."""
    rows = data.draw(any_rows(name))
    with TemporaryDirectory() as folder:
        file, building = written(name, rows, Path(folder))
        expected, answers = made_of(name, rows)
        right = [line for line in expected if not FORMATS[name].line_problem(line)]
        assert read_back(file) == right
        assert len(right) + len(building.refused) == len(expected) + answers
        if FORMATS[name].index:
            index = lines(Path(folder) / "data.rows.jsonl")
            assert [entry["line"] for entry in index] == list(range(1, len(right) + 1))


@given(rows=any_rows("slime"))
@settings(max_examples=25)
def test_slime_reads_messages_back(rows: list[ChatRow]) -> None:
    """slime reads with pandas, whose reader is not Python's; floats may lose their last digit."""
    pandas = pytest.importorskip("pandas")
    with TemporaryDirectory() as folder:
        file, _ = written("slime", rows, Path(folder))
        if not file.read_bytes():
            return
        table = pandas.read_json(io.BytesIO(file.read_bytes()), lines=True, dtype={"label": str})
        assert close([row.to_dict() for _, row in table.iterrows()], lines(file))


@pytest.mark.parametrize("parquet", [False, True], ids=["lines", "parquet"])
@given(data=st.data())
@settings(max_examples=12)
def test_datasets_reads_messages_back(parquet: bool, data: Any) -> None:
    """Of JSON Lines it rounds numbers to ten decimals, which is remarked; else nothing changes."""
    datasets = pytest.importorskip("datasets")
    rows = data.draw(any_rows("trl-chat", FLOATS if parquet else SHORT))
    with TemporaryDirectory() as folder:
        file, building = written("trl-chat", rows, Path(folder, "out"), parquet)
        expected = [
            line
            for line in made_of("trl-chat", rows)[0]
            if not FORMATS["trl-chat"].line_problem(line)
        ]
        assert len(expected) + len(building.refused) == sum(row.trained for row in rows)
        assert parquet or trl_format.FINE_NUMBER_REMARK not in building.remarks
        loaded = datasets.load_dataset(str(file.parent), split="train", cache_dir=f"{folder}/c")
        assert close(list(loaded), expected)


def test_raw_rows_in_parquet_are_those_in_lines(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    token_rows = [made(), made(kind="summary", answers=((3, 1.0),), id="r-1/summary.1")]
    table, _ = written("raw", token_rows, tmp_path / "table", parquet=True)
    file, _ = written("raw", token_rows, tmp_path / "lines")
    rows = parquet.read_table(table).to_pylist()
    for span in (span for row in rows for span in row["spans"]):
        span["sampling"] = json.loads(span["sampling"])  # any parameters: parquet has it as JSON
    assert rows == lines(file)
    assert rows[0]["spans"][0]["sampling"] == {"temperature": 1.0, "top_p": 1.0}


@pytest.mark.parametrize("name", ["trl-chat", "slime", "openai"])
def test_an_observation_of_ten_megabytes(name: str, tmp_path: Path) -> None:
    text = "文\x00<a>" * 2_000_000
    row = talk(step(1, result=text), step(2))
    file, building = written(name, [row], tmp_path)
    assert not building.refused
    newest = lines(file)[-1]
    messages: Any = newest.get("messages") or newest["prompt"]
    assert messages[3]["content"] == text
    if name == "trl-chat":
        datasets = pytest.importorskip("datasets")
        loaded = datasets.load_dataset(str(tmp_path), split="train", cache_dir=f"{tmp_path}/c")
        assert loaded[1]["prompt"][3]["content"] == text


ODD = {
    "half a character": "\ud800",
    "no number": float("nan"),
    "a large number": 2**70,
    "deep": json.loads("[" * 200 + "]" * 200),
}
WHOLE_IN_TEXT = ("a large number", "deep")
"""What arguments as text hold all the same."""


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("name", ["trl-chat", "slime", "openai"])
def test_what_json_cannot_hold_is_kept_aside(name: str, what: str, tmp_path: Path) -> None:
    bad, good = talk(step(1, arguments=[{"a": ODD[what]}])), talk(id="r-2/0.0")
    file, building = written(name, [bad, good], tmp_path)
    if name == "openai" and what in WHOLE_IN_TEXT:
        assert not building.refused
        return
    (refused,) = building.refused
    assert refused.row.startswith("r-1/0.0") and refused.why
    assert all("r-1" not in json.dumps(line.get("row", "")) for line in lines(file))
    assert lines(file)


def close(actual: Any, expected: Any) -> bool:
    """Equal, but for the last digit of a float; 1 and 1.0 are not equal."""
    if isinstance(expected, float):
        return isinstance(actual, int | float) and math.isclose(actual, expected, rel_tol=1e-9)
    if isinstance(expected, dict):
        same = isinstance(actual, dict) and list(actual) == list(expected)
        return same and all(close(actual[key], value) for key, value in expected.items())
    if isinstance(expected, list):
        same = isinstance(actual, list) and len(actual) == len(expected)
        return same and all(map(close, actual, expected))
    return type(actual) is type(expected) and bool(actual == expected)
