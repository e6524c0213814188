"""Rows of a rollout whose workers and daemon were killed are those of a rollout left in peace."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer
from houston_daemon.training.rows.row_builder import build_token_rows
from houston_daemon.training.rows.training_row import TokenRow
from houston_shared.home import Home
from houston_shared.store.store_reader import Reader
from tests.engines.conftest import free_port
from tests.faults.engine import ACTION
from tests.support.reference_ledger import Ledger
from tests.support.small_tokenizer import small_tokenizer
from tests.support.station import Station

PROGRAM = Path(__file__).parents[2] / "faults/engine.py"
TASK = """
name = "words"
instructions = "Go on."
environment = "null"
[budget]
steps = 12
context_tokens = 1200
answer_tokens = 300
"""
CLOCK = re.compile(r"active [0-9:]+, [0-9:]+ left")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Station]:
    tokenizer, port = small_tokenizer(tmp_path), free_port()
    action = ACTION.removesuffix("<|im_end|>")
    words = [sys.executable, str(PROGRAM), str(port), tokenizer, str(tmp_path / "seen"), action]
    engine = subprocess.Popen(words)
    (tmp_path / "houston.toml").write_text(
        f"[engines.small]\nkind = 'token'\nurl = 'http://127.0.0.1:{port}/v1'\n"
        f"tokenizer = '{tokenizer}'\n"
    )
    station = Station(tmp_path)
    station.environment["HOUSTON_CONFIG"] = str(tmp_path / "houston.toml")
    try:
        (tmp_path / "task.toml").write_text(TASK)
        station.start()
        yield station
    finally:
        station.clear()
        engine.kill()
        engine.wait()


def rows(place: Station, rollout: str) -> list[TokenRow]:
    with Reader(Home(place.home)) as reader:
        return list(build_token_rows(reader, rollout))


def shown(row: TokenRow, tokens: PromptTokenizer) -> list[Any]:
    """A row as text, with the clock stopped: each stretch, and what it weighs."""
    parts: list[Any] = [row.kind, row.context]
    at = 0
    for span in row.spans:
        before = tokens.decode(row.token_ids[at : span.start])
        answer = tokens.decode(row.token_ids[span.start : span.end])
        why = span.why.replace(row.rollout, "R")
        parts += [CLOCK.sub("active", before), (span.step, span.weight, why, answer)]
        at = span.end
    return parts


def test_rows_do_not_know_of_kills(place: Station) -> None:
    (quiet,) = place.rollout(place.folder / "task.toml", "small")
    assert place.ended(quiet)["state"] == "finished"
    (killed,) = place.rollout(place.folder / "task.toml", "small")
    hold = place.folder / "seen.hold"
    for reached in (3, 8):
        place.until(lambda n=reached: place.closed(killed) >= n, why=f"step {reached}")
        hold.touch()  # a sample is under way, and nobody will hear its answer
        place.kill_daemon()
        before = rows(place, killed)
        hold.unlink()
        place.start()
    assert place.ended(killed)["state"] == "finished"
    tokens = PromptTokenizer(str(place.folder / "tokenizer.json"))
    first, second = rows(place, quiet), rows(place, killed)
    assert len(first) >= 3, "it forked"
    assert [shown(row, tokens) for row in first] == [shown(row, tokens) for row in second]
    assert second[: len(before) - 1] == before[:-1], "what was there, is as it was"
    last = before[-1]
    now = second[len(before) - 1]
    assert now.token_ids[: len(last.token_ids)] == last.token_ids, "and the last one went on"
    ledger = Ledger(place.home, killed)
    trained = [(row, span) for row in second for span in row.spans if span.weight]
    assert sorted(span.step for _, span in trained) == list(range(1, 13))
    for row, span in trained:
        assert list(row.token_ids[: span.start]) == ledger.prompt(span.step)
        ids = ledger.samples[span.sample_seq].token_ids
        assert tuple(row.token_ids[span.start : span.end]) == ids
