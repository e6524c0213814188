"""Engines that die, go away or answer with errors: the same request again, and rollouts wait.

Nothing of it costs a step, and all of it can be seen.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from houston_daemon.service import engine_endpoints
from houston_shared import wire
from tests.faults.daemon_under_test import Ground
from tests.faults.engine_proxy import Tap, free_port, tapped
from tests.faults.final_checks import until_over, wrong
from tests.support.houston_command import houston_command
from tests.support.small_tokenizer import small_tokenizer
from tests.support.station import alive
from tests.support.tiers import sampled

PROGRAM = str(Path(__file__).with_name("engine.py"))
WITH_A_CHILD = """
import mmap, os, signal, subprocess, sys, tempfile
open(os.path.join(tempfile.gettempdir(), "left"), "w").close()
if not os.fork():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open(sys.argv[1], "w+b") as shared:
        shared.truncate(4096)
        kept = mmap.mmap(shared.fileno(), 4096)
    signal.pause()
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""
"""An engine as vLLM is: a child that hears no SIGTERM, temporary files, shared memory."""
STEPS = 6
TASK = f'environment = "null"\n[budget]\nsteps = {STEPS}\nminimum_steps = {STEPS}\n'


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[str]:
    """URL of the small engine, run by nobody but the test."""
    port = free_port()
    server = subprocess.Popen([sys.executable, PROGRAM, str(port), small_tokenizer(tmp_path)])
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(20)


def steps(ground: Ground) -> list[int]:
    return [n for (n,) in ground.query("SELECT step FROM steps ORDER BY step")]


def houston(ground: Ground, *words: str) -> str:
    """What a command of a person prints."""
    done = subprocess.run(
        houston_command("--home", str(ground.home.path), *words),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def test_an_engine_killed_in_mid_request_is_started_again_and_asked_the_same(
    tmp_path: Path,
) -> None:
    seen = tmp_path / "seen"
    hold = seen.with_suffix(".hold")
    tokenizer = small_tokenizer(tmp_path)
    ground = Ground(
        tmp_path / "ground",
        f"[engines.killed]\nkind = 'vllm'\ntokenizer = '{tokenizer}'\n"
        f"command = ['{sys.executable}', '{PROGRAM}', '{{port}}', '{tokenizer}', '{seen}']\n",
    )
    try:
        ground.started()
        folder, _ = ground.task("killed", TASK, [])
        hold.touch()
        ground.rollouts((folder, "killed"))
        ground.until(lambda: _lines(seen) == 1, 60, "a request under way")
        (pid,) = ground.own(PROGRAM)
        os.kill(pid, signal.SIGKILL)
        ground.until(lambda: _lines(seen) == 2, 60, "it is asked again")
        hold.unlink()
        until_over(ground)
        assert steps(ground) == list(range(1, STEPS + 1))
        bodies = seen.read_bytes().splitlines()
        assert bodies[0] == bodies[1], "the same request, byte for byte"
        assert len(bodies) == STEPS + 1, "and none but the one was sent twice"
        assert ground.query("SELECT count(*) FROM samples") == [(STEPS,)], "one step, one sample"
        assert wrong(ground) == []
    finally:
        ground.close()


def _lines(seen: Path) -> int:
    return len(seen.read_bytes().splitlines()) if seen.exists() else 0


def test_an_engine_that_is_down_for_long_pauses_its_rollouts_until_it_answers(
    engine: str, tmp_path: Path
) -> None:
    port = free_port()
    tap = Tap(engine, port)
    ground = Ground(
        tmp_path / "ground",
        f"[engines.away]\nkind = 'token'\nurl = '{tap.url}'\n"
        f"tokenizer = '{small_tokenizer(tmp_path)}'\n",
    )
    ground.environment["HOUSTON__DAEMON__ENGINE_PATIENCE_SECONDS"] = "0.5"
    try:
        ground.started()
        folder, _ = ground.task("away", TASK, [])
        tap.fate = lambda body: "hold" if len(tap.bodies) > 2 else "pass"
        (rollout,) = ground.rollouts((folder, "away"))
        assert tap.held.acquire(timeout=30), "a request under way"
        tap.close()

        def paused() -> bool:
            return ground.query("SELECT state, paused_by FROM rollouts") == [("paused", "engine")]

        ground.until(paused, 60, "it is paused by its engine")
        shown = json.loads(houston(ground, "rollout", "show", rollout, "--json"))
        assert (shown["state"], shown["paused_by"]) == ("paused", "engine")
        assert f"127.0.0.1:{port} cannot be reached" in shown["reason"]
        assert "paused" in houston(ground, "rollout", "list")
        assert re.search(r"away: down: .*cannot be reached", houston(ground, "daemon", "status"))

        ground.signal(signal.SIGKILL)  # and the daemon dies while it is down
        ground.ended()
        ground.started()
        ground.until(paused, 60, "the next daemon pauses it, too")
        before = steps(ground)
        asked = tap.bodies[-1]
        tap = Tap(engine, port)
        until_over(ground)
        assert before == [1, 2]
        assert tap.bodies[0] == asked, "the request that was never answered, byte for byte"
        assert steps(ground) == list(range(1, STEPS + 1))
        assert ground.ask(wire.AskStatus()).engines["away"] == "ready"
        assert wrong(ground) == []
    finally:
        tap.close()
        ground.close()


@pytest.mark.slow
def test_an_engine_that_answers_with_errors_is_shown_as_failing_and_asked_again(
    engine: str, tmp_path: Path
) -> None:
    with tapped(engine) as tap:
        ground = Ground(
            tmp_path / "ground",
            f"[engines.sick]\nkind = 'chat'\nmodel = 'm'\nurl = '{tap.url}'\n",
        )
        try:
            sick = (503, '{"error": {"message": "the GPU is on fire"}}')
            well = (200, _answer())
            tap.fate = lambda body: sick if len(tap.bodies) > 2 else well
            ground.started()
            folder, _ = ground.task("sick", TASK, [])
            ground.rollouts((folder, "sick"))

            def engines() -> str:
                return str(ground.ask(wire.AskStatus()).engines.get("sick", ""))

            ground.until(lambda: engines().startswith("failing: "), 60, "it is failing")
            assert "503: the GPU is on fire" in engines()
            assert "503: the GPU is on fire" in houston(ground, "daemon", "status")
            assert ground.states().popitem()[1] == "running", "it waits, and says so"
            tap.fate = lambda body: well
            until_over(ground)
            assert steps(ground) == list(range(1, STEPS + 1))
            tries = [body for body in tap.bodies if body == tap.bodies[2]]
            assert len(tries) > 6, "the same request, as often as it took"
            assert len(set(tap.bodies)) == STEPS
            ground.until(lambda: engines() == "ready", 60, "the status has forgotten it")
            assert wrong(ground) == []
        finally:
            ground.close()


@pytest.mark.parametrize("home", sampled(["kept", "removed"], 1))
def test_an_engine_without_a_daemon_ends_and_leaves_nothing(home: str, tmp_path: Path) -> None:
    tokenizer = small_tokenizer(tmp_path)
    shared = Path(f"/dev/shm/houston-test-{os.getpid()}-{home}")
    words = [sys.executable, "-c", WITH_A_CHILD, str(shared), PROGRAM, "{port}", tokenizer]
    ground = Ground(
        tmp_path / "ground",
        f"[engines.alone]\nkind = 'vllm'\ntokenizer = '{tokenizer}'\n"
        f"command = {json.dumps(words)}\n",
    )
    ground.environment["HOUSTON__DAEMON__ENGINE_ORPHAN_SECONDS"] = "12"
    try:
        ground.started()
        folder, _ = ground.task("alone", TASK, [])
        ground.rollouts((folder, "alone"))
        until_over(ground)
        engine, child = sorted(ground.own(PROGRAM) + ground.own("/dev/shm/houston-test"))[:2]
        state = msgspec.json.decode(engine_endpoints.state_file(ground.home, "alone").read_bytes())
        temporary = Path(state["temporary"])
        assert (temporary / "left").exists()
        assert shared.exists()

        ground.signal(signal.SIGKILL)
        ground.ended()
        ground.started()
        assert alive(engine), "the next daemon came in time"
        ground.signal(signal.SIGKILL)
        ground.ended()
        log = engine_endpoints.engine_log(ground.home, "alone")
        if home == "removed":
            shutil.rmtree(ground.home.path)
        else:
            ground.until(log.exists, 60, "the guard writes to the engine's log")
            ground.until(lambda: "no daemon for 12 s, ending" in log.read_text(), 60, "why")
        ground.until(lambda: not alive(engine) and not alive(child), 60, "both have ended")
        ground.until(lambda: not temporary.exists(), 60, "its temporary files are gone")
        ground.until(lambda: not shared.exists(), 60, "its shared memory is gone")
        ground.until(lambda: not ground.own("engine_guard"), 60, "and so is the guard")
    finally:
        shared.unlink(missing_ok=True)
        ground.close()


def _answer() -> str:
    """One call, as a chat endpoint streams it."""
    function = {"name": "noop", "arguments": '{"text": "again"}'}
    call: dict[str, Any] = {"index": 0, "id": "x", "function": function}
    choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}
    return f"data: {json.dumps({'choices': [choice]})}\n\ndata: [DONE]\n\n"
