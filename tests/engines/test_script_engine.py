"""The script engine plays a file, step by step, and goes on at the right line after a restart."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from houston_daemon.engines.engine_protocol import SampleRequest
from houston_daemon.engines.script_engine import ScriptEngine
from houston_shared.errors import ConfigurationError

STEPS = [
    {"thought": "first", "calls": [{"name": "a", "arguments": {"x": 1}}, {"name": "b"}]},
    {"thought": "second", "calls": [{"name": "c", "arguments": {}}], "delay": 0.01},
    {"thought": "no action"},
]


def script(folder: Path, lines: list[object]) -> ScriptEngine:
    file = folder / "script.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    return ScriptEngine(file)


def ask(step: int = 0, role: str = "policy") -> SampleRequest:
    return SampleRequest(None, (), (), 100, step=step, role=role)  # type: ignore[arg-type]


async def test_plays_every_line_and_then_finishes(tmp_path: Path) -> None:
    engine = script(tmp_path, STEPS)
    played = [await engine.sample(ask(), asyncio.Event()) for _ in range(5)]
    assert [[call.name for call in one.calls or ()] for one in played] == [
        ["a", "b"],
        ["c"],
        [],
        ["finish"],
        ["finish"],
    ]
    assert played[0].thought == "first"
    assert [call.id for call in played[0].calls or ()] == ["1.0", "1.1"]
    assert played[0].token_ids is None


RESUMED = {
    "the request names the step": (2, "second"),
    "past the end": (9, "The script has ended."),
}


@pytest.mark.parametrize("case", RESUMED)
async def test_goes_on_at_the_right_line(tmp_path: Path, case: str) -> None:
    step, thought = RESUMED[case]
    engine = script(tmp_path, STEPS)
    assert (await engine.sample(ask(step), asyncio.Event())).thought == thought


async def test_a_summary_plays_no_line(tmp_path: Path) -> None:
    engine = script(tmp_path, STEPS)
    assert (await engine.sample(ask(role="summary"), asyncio.Event())).text
    assert (await engine.sample(ask(), asyncio.Event())).thought == "first"


async def test_an_interrupt_cuts_a_delay_short_and_plays_the_line_again(tmp_path: Path) -> None:
    engine = script(tmp_path, [{"thought": "slow", "delay": 600}])
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.05, stop.set)
    started = time.monotonic()
    got = await engine.sample(ask(), stop)
    assert time.monotonic() - started < 60
    assert (got.finish_reason, got.calls) == ("interrupted", ())


BROKEN = {
    "no JSON": "{",
    "an unknown key": '{"thougt": "x"}',
    "too many brackets": '{"thought": ' + "[" * 5_000 + "]" * 5_000 + "}",
    "arguments too deep": '{"calls": [{"name": "a", "arguments": {"a": '
    + "[" * 5_000
    + "]" * 5_000
    + "}}]}",
    "arguments that are no object": '{"calls": [{"name": "a", "arguments": [1]}]}',
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_line_is_named(tmp_path: Path, case: str) -> None:
    (tmp_path / "s.jsonl").write_text('{"thought": "fine"}\n' + BROKEN[case] + "\n")
    with pytest.raises(ConfigurationError, match="Line 2"):
        ScriptEngine(tmp_path / "s.jsonl")


async def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    thought = "a\u2028b\x85c\u2029d"
    line = json.dumps({"thought": thought}, ensure_ascii=False)
    (tmp_path / "s.jsonl").write_text(f"{line}\r\n{line}\n", encoding="utf-8", newline="")
    engine = ScriptEngine(tmp_path / "s.jsonl")
    assert [(await engine.sample(ask(), asyncio.Event())).thought for _ in "12"] == [thought] * 2


@pytest.mark.parametrize("text", ["", "\n  \n"])
def test_a_script_without_a_step_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.jsonl").write_text(text)
    with pytest.raises(ConfigurationError, match="has no step"):
        ScriptEngine(tmp_path / "s.jsonl")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        ScriptEngine(tmp_path / "none.jsonl")
