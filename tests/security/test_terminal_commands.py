"""Every command that shows what agents and people wrote, in a real terminal and on a pipe."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from houston_shared.home import Home
from tests.security import hostile_home, payloads, recogniser
from tests.security.payloads import Payload
from tests.security.pty_session import ENVIRONMENT, Session
from tests.support.houston_command import houston_command
from tests.support.tiers import sampled

Seeded = tuple[Home, Sequence[Payload]]
FLOOD, LONG = hostile_home.FLOOD, hostile_home.LONG
AT_LEAST = 5_000
BAD = "\x1b]0;owned\x07\x9b8m\u202e[/x]\x1b[6n"
WHOLE: dict[str, tuple[str, ...]] = {
    "steps": ("steps", FLOOD, "--full"),
    "context": ("context", FLOOD, "27"),
    "log of the daemon": ("daemon", "logs", "-n", "100000"),
}
"""Commands that show the whole corpus."""
READING: dict[str, tuple[str, ...]] = {
    "short steps": ("steps", FLOOD),
    "steps of a megabyte": ("steps", LONG, "--full"),
    "tail": ("tail", FLOOD, "-n", "2000"),
    "tail of all": ("tail", "-n", "300"),
    "search": ("search", "owned", "-n", "200"),
    "search in one": ("search", "Q00003Q", "--rollout", FLOOD),
    "guidance": ("guidance", FLOOD),
    "audit": ("log", "--audit", "-n", "2000"),
    "journal": ("log", "-n", "500"),
    "rollouts": ("rollout", "list"),
    "a rollout": ("rollout", "show", FLOOD),
    "a failed rollout": ("rollout", "show", "00"),
    "tasks": ("task", "list"),
    "status": ("daemon", "status"),
}
WRONG: dict[str, tuple[str, ...]] = {
    "no such command": (BAD,),
    "no such word": ("steps", FLOOD, BAD, "again"),
    "no such option": ("steps", f"--{BAD}"),
    "no number": ("steps", FLOOD, "--from", BAD),
    "no kind": ("tail", "--kind", BAD),
    "no rollout": ("rollout", "show", BAD),
    "no home": ("--home", f"/tmp/{BAD}", "rollout", "list"),
    "no configuration": ("--config", f"/tmp/{BAD}.toml", "rollout", "list"),
    "no task": ("task", "validate", f"/tmp/{BAD}/task.toml"),
    "a message for nobody": ("guide", BAD, BAD),
    "no guidance": ("guidance", FLOOD, "--withdraw", BAD),
    "no time": ("context", FLOOD, "27", "--attempt", BAD),
    "a file that is none": ("console", "--picture", f"/nowhere/{BAD}.svg", "--size", BAD),
}


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Seeded:
    return hostile_home.write(tmp_path_factory.mktemp("hostile"))


def _in_terminal(words: tuple[str, ...], home: Home, **more: str) -> bytes:
    with Session(words, home.path, 160, 50, **more) as session:
        session.ended()
        return bytes(session.captured)


def _on_pipe(words: tuple[str, ...], home: Home) -> bytes:
    done = subprocess.run(
        houston_command(*words),
        env={**ENVIRONMENT, "HOUSTON_HOME": str(home.path)},
        capture_output=True,
        check=False,
        timeout=60,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", sampled(WHOLE, 1))
def test_the_whole_corpus_is_shown_and_obeyed_nowhere(name: str, seeded: Seeded) -> None:
    home, all_payloads = seeded
    coloured = _in_terminal(WHOLE[name], home)
    plain = _in_terminal(WHOLE[name], home, NO_COLOR="1")
    for captured in (coloured, plain, _on_pipe(WHOLE[name], home)):
        assert recogniser.hostile(captured, recogniser.in_commands) == []
        seen = payloads.marks(recogniser.shown(captured))
        assert len(seen) >= AT_LEAST, f"only {len(seen)} of {len(all_payloads)} payloads were shown"
    assert b"\x1b[" not in plain


@pytest.mark.parametrize("name", sampled(READING, 5))
def test_no_reading_command_writes_a_hostile_byte(name: str, seeded: Seeded) -> None:
    home = seeded[0]
    for captured in (
        _in_terminal(READING[name], home),
        _in_terminal(READING[name], home, NO_COLOR="1"),
    ):
        assert recogniser.hostile(captured, recogniser.in_commands) == []
        assert len(captured) > 20


@pytest.mark.parametrize("name", sampled([*WHOLE, *READING], 5))
def test_json_is_harmless_on_a_terminal_and_says_the_same(name: str, seeded: Seeded) -> None:
    words = {**WHOLE, **READING}[name]
    if words[:2] == ("daemon", "logs"):
        pytest.skip("lines of a log, no JSON")
    captured = _in_terminal((*words, "--json"), seeded[0])
    assert recogniser.hostile(captured, recogniser.in_commands) == []
    assert b"\x1b" not in captured
    assert [json.loads(line) for line in captured.decode().splitlines() if line.startswith("{")]


def test_json_holds_what_was_written_byte_for_byte(seeded: Seeded) -> None:
    home, all_payloads = seeded
    lines = _on_pipe(("steps", FLOOD, "--json"), home).decode().splitlines()
    observed = "\n".join(json.loads(line)["observation"] for line in lines)
    assert [one.mark for one in all_payloads if one.text not in observed] == []


@pytest.mark.parametrize("name", sampled(WRONG, 5))
def test_no_error_repeats_what_a_terminal_obeys(name: str, seeded: Seeded) -> None:
    captured = _in_terminal(WRONG[name], seeded[0])
    assert recogniser.hostile(captured, recogniser.in_commands) == []
    assert b"houston" in captured
    assert b"Traceback" not in captured and b"bug in Houston" not in captured


def test_arguments_that_are_no_text_are_refused_in_safe_words(seeded: Seeded) -> None:
    with Session(["steps", b"\xff\x9b8m\x1b]0;x\x07"], seeded[0].path, 80, 24) as session:
        assert session.ended() == 2
        assert recogniser.hostile(bytes(session.captured), recogniser.in_commands) == []


def test_a_hostile_task_file_is_refused_in_safe_words(seeded: Seeded, tmp_path: Path) -> None:
    file = tmp_path / "task.toml"
    for text in (
        f'name = "{BAD}"',
        'name = "a"\n"\\u001b]0;x\\u0007" = 1',
        "[\x1b[8m]",
        "\x9b = [",
    ):
        file.write_text(text)
        captured = _in_terminal(("task", "validate", str(file)), seeded[0])
        assert recogniser.hostile(captured, recogniser.in_commands) == []
        assert b"houston" in captured


def test_the_recogniser_sees_what_is_hostile() -> None:
    found = [
        one.mark for one in payloads.corpus()
        if not recogniser.hostile(one.text.encode(), recogniser.in_commands)
    ]  # fmt: skip
    harmless = {text for text in payloads.deceptions() if text.isascii()}
    kept = {one.text[7:] for one in payloads.corpus() if one.mark in found}
    joined = {f"ad{joiner}min" for joiner in recogniser.JOINERS}
    assert {text for text in kept if not text.isascii()} <= joined
    assert len(kept - harmless) < 60, sorted(kept - harmless)
