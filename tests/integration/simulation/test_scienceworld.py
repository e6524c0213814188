"""A rollout in ScienceWorld: acts, free looks, a score, and every fault."""

import asyncio
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from houston_daemon.hosts.host_protocol import NeedsPerson
from houston_daemon.service.rollout_start_checks import check_task_names
from houston_shared.errors import ConfigurationError
from tests.integration.simulation.worlds import Played, task_of

SHORT = 'tasks = ["boil"]\nvariation = 0\n'


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Played]:
    played = Played(tmp_path, "scienceworld", SHORT)
    await played.open()
    yield played
    await played.environment.close(ended=True)
    end = time.monotonic() + 20  # a process that was killed is there until the kernel has buried it
    while played.processes():
        assert time.monotonic() < end, "simulator or Java is left"
        await asyncio.sleep(0.05)


async def test_a_world_is_acted_in_looked_at_and_lost(world: Played) -> None:
    goal, _, place = world.environment.brief.partition("\n\n")
    assert goal.startswith("Your task is to boil water.")
    assert "This room is called" in place
    looked = await world("look_around")
    assert looked.kind == "look" and "This room is called" in looked.text
    assert "In your inventory" in (await world("inventory")).text
    every = await world("list_actions", most=3)
    assert every.fields["total"] > 100 and every.text.count("\n") == 3
    doors = await world("list_actions", containing="open DOOR")
    assert 0 < doors.fields["total"] < 10 and "open door to" in doors.text
    assert "No command with 'xyz'" in (await world("list_actions", containing="xyz")).text
    unknown = await world.act("sing  a\nsong")
    assert unknown.success and unknown.kind == "act"
    assert "No known action matches that input." in unknown.text
    assert unknown.fields["overall_score"] == 0.0 and unknown.fields["turns"] == 0
    reset = await world.act("Reset Task")
    assert reset.kind == "error" and "one attempt" in reset.text
    lost = await world.act("focus on agent")
    assert lost.kind == "eval" and lost.fields["finished"] and lost.fields["counted"]
    assert lost.fields["overall_score"] == 0.0 and lost.fields["outcome"] == "lost"
    over = await world.act("look around")
    assert over.kind == "error" and "over" in over.text
    done = await world("finish")
    assert done.kind == "eval" and done.fields["finished"]
    for name, arguments, words in (
        ("act", {}, "needs the argument `action`"),
        ("act", {"action": "x" * 201}, "action"),
        ("eval", {}, "There is no tool 'eval'"),
        ("look", {}, "There is no tool 'look'"),
    ):
        wrong = await world(name, **arguments)
        assert wrong.kind == "error" and words in wrong.text


@pytest.mark.slow
async def test_java_dies_hangs_and_a_worker_dies(world: Played) -> None:
    first = [await world.act(action) for action in ("look around", "open door", "wait1")]
    java = [pid for pid in world.processes() if pid != world.pid]
    os.kill(java[0], signal.SIGKILL)
    place = await world("look_around")
    assert place.success and "This room is called" in place.text, "a new one did it all again"
    os.kill(next(pid for pid in world.processes() if pid != world.pid), signal.SIGSTOP)
    carried = await world.act("inventory")
    assert "In your inventory" in carried.text, "a hanging one is replaced"
    await world.again()
    assert len(world.processes()) == 2
    kept = await world.recovered("inventory")
    assert (kept.kind, kept.text, kept.fields) == (carried.kind, carried.text, carried.fields)
    assert len(world.log.read_text().splitlines()) == 1 + len(first) + 1, "no turn was made twice"


async def test_a_world_that_is_not_the_same_waits_for_a_person(world: Played) -> None:
    await world.act("look around")
    lines = world.log.read_text()
    world.log.write_text(lines + '{"call":"9.0","action":"half')
    await world.again()
    assert world.log.read_text() == lines, "a turn that was not written whole was never seen"
    world.log.write_text(lines.replace('"look around"', '"open door to hallway"'))
    with pytest.raises(NeedsPerson, match="turn 1, 'open door to hallway', is not what it was"):
        await world.again()
    assert not world.processes()
    world.log.write_text(lines.replace('{"call"', '{"cal'))
    with pytest.raises(NeedsPerson, match="damaged"):
        await world.again()
    world.log.unlink()
    with pytest.raises(NeedsPerson, match="no longer on the host"):
        await world.again()


async def test_without_java_a_person_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shutil.which("java"), "the tests of ScienceWorld need Java"
    played = Played(tmp_path, "scienceworld", SHORT)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NeedsPerson, match="Java is not installed"):
        await played.environment.open()
    with pytest.raises(ConfigurationError, match="Java is not installed"):
        check_task_names(played.loaded)
    broken = tmp_path / "java"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(NeedsPerson, match="The simulator failed"):
        await played.environment.open()
    assert not played.processes()


WRONG = [
    ('tasks = ["boyle"]', "names 'boyle'"),
    ('tasks = ["boil", "boil"]', "a task twice"),
    ('simplifications = ["hard"]', "names 'hard'"),
    ('tasks = ["power-component"]\nsimplifications = ["noElectricalAction"]', "needs the electric"),
    ('tasks = ["boil"]\nvariation = 14', "the split 'train' of boil has 0 to 13"),
    ('split = "all"', "split"),
]


@pytest.mark.parametrize(("settings", "words"), WRONG)
def test_a_task_that_cannot_run_is_refused(tmp_path: Path, settings: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        check_task_names(task_of(tmp_path, "scienceworld", settings))
