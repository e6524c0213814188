"""Search finds everything, with an index, with one that lags, and with none; in every mode."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from houston_daemon.recorder.journal_writer import EventKey
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.records import FileChange, ForkBody, TerminalSpan, ToolCall, ToolResult
from houston_shared.store.event_bodies import StoredObservation, StoredSample, VerdictGiven
from houston_shared.store.journal_search import (
    MAX_SLOW_TEXTS,
    SearchHit,
    search_hit_json,
    search_home,
)
from houston_shared.store.search_matching import (
    SearchMode,
    SearchQuery,
    rollout_tag,
    searchable_text,
)
from houston_shared.store.store_reader import Reader
from houston_shared.terminal_log_files import segment_file, terminals_folder
from tests.support.written_home import WrittenHome, sample, stored

WRITE = ToolCall(id="2.0", name="write_file", arguments={"path": "src/solve.py", "content": "x"})


def index(written: WrittenHome, upto: int) -> None:
    """search.db as the recorder's thread would have it after `upto`."""
    connection = sqlite3.connect(written.home.search_database)
    connection.executescript(
        "CREATE VIRTUAL TABLE entries USING fts5(tag, text, content='', tokenize='unicode61');"
        "CREATE TABLE indexed (id INTEGER PRIMARY KEY CHECK (id = 1), seq INTEGER NOT NULL);"
    )
    rows = written.connection.execute(
        "SELECT seq, rollout, kind, body FROM events WHERE seq <= ? AND body IS NOT NULL", (upto,)
    )
    for seq, rollout, kind, body in rows.fetchall():
        if text := searchable_text(kind, body):
            connection.execute(
                "INSERT INTO entries (rowid, tag, text) VALUES (?, ?, ?)",
                (seq, rollout_tag(rollout), text),
            )
    connection.execute("INSERT INTO indexed VALUES (1, ?)", (upto,))
    connection.commit()
    connection.close()


def history(written: WrittenHome) -> None:
    for rollout in ("r-1", "r-2"):
        written.rollout(rollout)
        written.step(rollout, 1, sample("I look for the needle in " + rollout))
        written.guide(rollout, "g" + rollout, "先看 README, then the haystack")
        written.step(rollout, 2, sample("Writing.", calls=(WRITE,)), ("Wrote 12 lines",))
    written.fork("r-2", 3, ForkBody(k=1, first_kept_step=2, summary="Needle found in café."))


STATES: dict[str, Callable[[WrittenHome], None]] = {
    "up to date": lambda written: index(written, written.seq),
    "lagging": lambda written: index(written, written.seq // 2),
    "empty": lambda written: index(written, 0),
    "missing": lambda written: None,
    "damaged": lambda written: (
        written.home.search_database.write_bytes(b"no database" * 500) and None
    ),
}

QUERIES = {
    "a word": ("needle", "", [("r-2", 3, "fork"), ("r-2", 1, "sample"), ("r-1", 1, "sample")]),
    "in one rollout": ("needle", "r-1", [("r-1", 1, "sample")]),
    "two words of one text": ("needle look", "", [("r-2", 1, "sample"), ("r-1", 1, "sample")]),
    "a call's argument": ("solve.py", "r-1", [("r-1", 2, "sample")]),
    "a result": ('"wrote 12"', "r-1", [("r-1", 2, "result")]),
    "guidance": ("haystack", "r-2", [("r-2", 0, "guidance")]),
    "part of a run of characters": ("看", "r-2", [("r-2", 0, "guidance")]),
    "a beginning": ("hay*", "r-1", [("r-1", 0, "guidance")]),
    "part of a word is not the word": ("need", "", []),
    "words of a path": ("src_solve", "r-1", [("r-1", 2, "sample")]),
    "the end of a path*": ("sol*", "r-1", [("r-1", 2, "sample")]),
    "syntax stays text": ('needle" OR text:', "r-1", []),
    "nowhere": ("unicorn", "", []),
    "empty": ("", "", []),
}


def find(reader: Reader, query: str, rollout: str = "", **fields: Any) -> list[SearchHit]:
    """Everything that is found."""
    search = SearchQuery(query, **{"mode": "words", **fields})
    if rollout:
        search = msgspec.structs.replace(search, where="rollout", rollout=rollout)
    progress = list(search_home(reader, search))
    assert progress[-1].done
    return [hit for report in progress for hit in report.hits]


def begun(thought: str, *calls: ToolCall) -> Any:
    return stored(StoredSample, sample(thought, calls=calls), active_us=1)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("case", QUERIES)
def test_the_same_is_found_whatever_the_index_knows(
    state: str, case: str, written: WrittenHome, reader: Reader
) -> None:
    history(written)
    STATES[state](written)
    query, rollout, expected = QUERIES[case]
    hits = find(reader, query, rollout)
    assert [(hit.rollout, hit.step, hit.name) for hit in hits] == expected


MODES: dict[str, tuple[SearchMode, str, list[tuple[str, int, str]]]] = {
    "part of a word": ("literal", "EEDLE in r-", [("r-2", 1, "sample"), ("r-1", 1, "sample")]),
    "across a space": ("literal", "eedle IN R-1", [("r-1", 1, "sample")]),
    "one character": ("literal", "看", [("r-2", 0, "guidance"), ("r-1", 0, "guidance")]),
    "an accent in the other case": ("literal", "CAFÉ", [("r-2", 3, "fork")]),
    "signs of patterns": ("literal", "s*e.py", []),
    "a pattern": ("regex", r"s\w+e\.py$", [("r-2", 2, "sample"), ("r-1", 2, "sample")]),
    "a pattern for nothing": ("regex", "x*", [("r-2", 2, "sample"), ("r-1", 2, "sample")]),
    "a number of a result": ("literal", "12", [("r-2", 2, "result"), ("r-1", 2, "result")]),
}


@pytest.mark.parametrize("case", MODES)
def test_text_as_it_stands_and_patterns(case: str, written: WrittenHome, reader: Reader) -> None:
    history(written)
    mode, query, expected = MODES[case]
    hits = find(reader, query, mode=mode)
    assert [(hit.rollout, hit.step, hit.name) for hit in hits] == expected


def test_what_is_nested_very_deep_is_found(written: WrittenHome, reader: Reader) -> None:
    deep: Any = "needle"
    for _ in range(800):
        deep = [deep]
    call = ToolCall(id="1.0", name="sleep", arguments={"seconds": deep})
    written.rollout("r1")
    written.step("r1", 1, sample("Waiting.", calls=(call,)))
    written.step("r1", 2, sample("Another needle."))
    index(written, written.seq)
    for mode in ("words", "literal"):
        assert [hit.step for hit in find(reader, "needle", mode=mode)] == [2, 1]


def test_a_number_among_arguments_is_found(written: WrittenHome, reader: Reader) -> None:
    call = ToolCall(id="1.0", name="sleep", arguments={"seconds": 5120, "deep": [{"on": True}]})
    written.rollout("r1")
    written.step("r1", 1, sample("wait", calls=(call,)), ("ok",))
    for text in ("512", "tru", "5120"):
        assert [hit.name for hit in find(reader, text, mode="literal")] == ["sample"], text
    assert find(reader, "5121", mode="literal") == []


def test_what_is_no_pattern_is_a_mistake_of_the_person(
    written: WrittenHome, reader: Reader
) -> None:
    history(written)
    with pytest.raises(HoustonError) as caught:
        find(reader, "(", mode="regex")
    assert "no regular expression" in caught.value.cause
    assert caught.value.code == ExitCode.USAGE


def test_a_pattern_that_would_never_end_is_given_up(written: WrittenHome, reader: Reader) -> None:
    written.rollout("r1")
    for number in range(1, MAX_SLOW_TEXTS + 3):
        written.step("r1", number, sample("a" * 200 + "!"))
    with pytest.raises(HoustonError, match="takes too long"):
        find(reader, r"^(a|aa|aaa|a?b?a)+$", mode="regex")


def test_only_the_rollouts_of_a_task_are_looked_at(written: WrittenHome, reader: Reader) -> None:
    for rollout, task in (("r-1", "one"), ("r-2", "two")):
        written.rollout(rollout, task)
        written.step(rollout, 1, sample("the needle"))
    hits = find(reader, "needle", where="task", task="two")
    assert [hit.rollout for hit in hits] == ["r-2"]


def test_diffs_and_searches_are_looked_at_where_they_are_asked_for(
    written: WrittenHome, reader: Reader
) -> None:
    written.rollout("r1")
    call = ToolCall(id="1.0", name="web_search", arguments={"query": "needle sharpening"})
    result = ToolResult(call=call, kind="web_search", success=True, text="3 pages on sharpening")
    written.event(EventKey("r1", 1, part="sample"), "sample", begun("look", call))
    written.event(EventKey("r1", 1, part="call.0"), "result", result)
    change = FileChange(
        path="src/needle.py", kind="changed", added=1, removed=1, diff="-old\n+newer line"
    )
    written.event(
        EventKey("r1", 1, part="observation"), "observation",
        StoredObservation(tail="", files=(change,), active_us=1),
    )  # fmt: skip
    assert [hit.name for hit in find(reader, "sharpening", what="searches")] == ["web_search"]
    assert [hit.name for hit in find(reader, "newer", what="diffs")] == ["src/needle.py"]
    assert find(reader, "newer") == []


def test_terminals_are_searched_in_their_logs_and_lead_to_the_step(
    written: WrittenHome, reader: Reader, tmp_path: Path
) -> None:
    written.rollout("r1", host_root=str(tmp_path / "host"))
    folder = terminals_folder(tmp_path / "host", "r1") / "main"
    folder.mkdir(parents=True)
    first = b"begin\r\nloss \x1b[31m0.5\x1b[0m\r\n"
    segment_file(folder, 0).write_bytes(first)
    segment_file(folder, len(first)).write_bytes(
        b"loss 0.4\r\nan end without a line break: loss 0.3"
    )
    for step, (start, end) in enumerate(((0, len(first)), (len(first), len(first) + 60)), 1):
        written.event(EventKey("r1", step, part="sample"), "sample", begun("go"))
        span = TerminalSpan(host="local", terminal="main", start=start, end=end)
        body = StoredObservation(tail="", spans=(span,), active_us=1)
        written.event(EventKey("r1", step, part="observation"), "observation", body)
    hits = find(reader, "loss 0", what="terminals", mode="literal")
    assert [(hit.step, hit.snippet) for hit in hits] == [
        (2, "loss 0.4"), (2, "an end without a line break: loss 0.3"), (1, "loss 0.5"),
    ]  # fmt: skip


def test_what_rules_say_only_quotes_a_step_and_is_not_found_beside_it(
    written: WrittenHome, reader: Reader
) -> None:
    written.rollout("r1")
    written.step("r1", 1, sample("the needle"))
    sources: tuple[Any, ...] = ("rule", "judge", "human")
    for source in sources:
        verdict = VerdictGiven(last=1, verdict="mask", by=source, source=source, reason="a needle")
        written.event(EventKey("r1", 1), "verdict", verdict)
    index(written, written.seq)
    for mode in ("words", "literal"):
        assert len(find(reader, "needle", mode=mode)) == 3, mode


def test_the_newest_come_first(written: WrittenHome, reader: Reader) -> None:
    written.rollout("r1")
    for number in range(1, 131):
        written.step("r1", number, sample(f"the needle {number}"))
    index(written, written.seq // 2)
    for mode in ("words", "literal", "regex"):
        steps = [hit.step for hit in find(reader, "needle", mode=mode)]
        assert steps == list(range(130, 0, -1)), mode


def test_what_the_index_guesses_comes_first_and_counts_once(
    written: WrittenHome, reader: Reader
) -> None:
    written.rollout("r1")
    for number in range(1, 131):
        written.step("r1", number, sample("two needles" if number == 4 else "one pinneedle"))
    index(written, written.seq)
    query = SearchQuery("needle", "literal", "rollout", rollout="r1")
    hits = [hit for report in search_home(reader, query, soon=True) for hit in report.hits]
    assert hits[0].step == 4  # the others have it within a word
    assert sorted(hit.step for hit in hits) == list(range(1, 131))


def test_the_shared_past_of_a_branch_is_part_of_it(written: WrittenHome, reader: Reader) -> None:
    written.rollout("r1")
    for number in range(1, 9):
        written.step("r1", number, sample(f"the needle {number}"))
    written.rollout("twig", parent="r1", parent_step=3)
    written.step("twig", 4, sample("another needle"))
    hits = find(reader, "needle", "twig", mode="literal")
    assert [(hit.rollout, hit.step) for hit in hits] == [
        ("twig", 4), ("r1", 3), ("r1", 2), ("r1", 1),
    ]  # fmt: skip


def test_what_was_erased_is_not_found(written: WrittenHome, reader: Reader) -> None:
    history(written)
    index(written, written.seq)
    for hit in find(reader, "needle"):
        written.erase(hit.seq)
    assert find(reader, "needle") == []


def test_a_hit_in_a_blob_is_found_without_an_index(written: WrittenHome, reader: Reader) -> None:
    written.rollout("r1")
    long = "x " * 40_000 + "needle"
    written.step("r1", 1, sample(calls=(WRITE,)), (long,), blob=True)
    (hit,) = find(reader, "needle")
    assert hit.snippet.endswith("needle")


def test_the_json_has_its_keys(written: WrittenHome, reader: Reader) -> None:
    history(written)
    (hit,) = find(reader, "haystack", "r-1")
    line = search_hit_json(hit)
    assert (line["rollout"], line["step"], line["kind"]) == ("r-1", None, "guidance")
    start, end = line["match"]
    assert line["snippet"][start:end] == "haystack"
