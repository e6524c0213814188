"""`houston evaluate` through the real daemon: one policy, two results, and what is refused."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from houston_daemon.suites.suite_catalog import SUITES
from houston_shared.home import Home
from houston_shared.store import rollout_queries
from houston_shared.store.store_reader import Reader
from tests.support.station import Station

SUITE = "word-worlds-easy"


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    made = Station(tmp_path_factory.mktemp("evaluate"))
    made.start()
    yield made
    made.clear()


@pytest.fixture(scope="module")
def engine(station: Station) -> str:
    """Solves the first task, and others where it has luck."""
    solve = SUITES[SUITE].solve
    assert solve is not None
    calls = [{"thought": "", "calls": [call], "delay": 0.0} for call in solve("test", 0)]
    return station.script(calls, "solver")


@pytest.fixture(scope="module")
def loser(station: Station) -> str:
    call = {"name": "push", "arguments": {}}
    return station.script([{"thought": "", "calls": [call], "delay": 0.0}] * 8, "loser")


def task_of(station: Station, rollout: str) -> dict[str, Any]:
    """The task as the rollout was given it."""
    with Reader(Home(station.home)) as reader:
        row = reader.run(rollout_queries.find_rollout(rollout))
        return tomllib.loads(reader.run(rollout_queries.read_rollout_spec(row)).task.definition)


def test_another_agent_plays_the_same_tasks(station: Station, engine: str) -> None:
    words = ("evaluate", SUITE, "-n", "2", "--engine", engine, "--agent", "flow")
    (report,) = station.json(*words, "--name", "flowing")
    (kept,) = [json.loads(Path(file).read_text()) for file in report["files"]]
    assert report["after"]["agent"] == kept["agent"] == "flow"
    for world in kept["worlds"]:
        agent = task_of(station, world["attempts"][0]["rollout"])["agent"]
        assert agent == {"kind": "flow"}


def test_before_and_after_play_the_same_tasks_with_the_same_decoding(
    station: Station, engine: str
) -> None:
    words = ("evaluate", SUITE, "-n", "4", "--engine", engine, "--before", "base")
    (report,) = station.json(*words, "--policy", "base", "--temperature", "0.5", "--name", "same")
    assert report["before"]["temperature"] == report["after"]["temperature"] == 0.5
    assert report["before"]["pass@1"] == report["after"]["pass@1"]
    assert report["difference"]["flips"] == {"gained": [], "lost": []}
    assert report["difference"]["p"] == 1.0
    assert not report["difference"]["beyond_chance"]
    runs = [json.loads(Path(file).read_text()) for file in report["files"]]
    names = [[world["name"] for world in run["worlds"]] for run in runs]
    assert names[0] == names[1] == [f"{SUITE}-1-test-{index}" for index in range(4)]
    for run in runs:
        (attempt,) = run["worlds"][0]["attempts"]
        assert task_of(station, attempt["rollout"])["sampling"]["temperature"] == 0.5
    again = station.run(*words, "--name", "same", code=1)
    assert "already exists" in again.stderr


def test_attempts_that_are_alike_are_warned_of(station: Station, engine: str) -> None:
    words = ("evaluate", SUITE, "-n", "1", "--engine", engine, "--attempts", "2")
    for temperature in ("0", "0.5"):
        done = station.run(*words, "--temperature", temperature, "--name", f"at-{temperature}")
        assert ("2 attempts at temperature 0 are" in done.stderr) == (temperature == "0")


def test_flips_are_named_and_the_picture_is_drawn(
    station: Station, engine: str, loser: str, tmp_path: Path
) -> None:
    for given, name in ((loser, "poor"), (engine, "good")):
        station.json("evaluate", SUITE, "-n", "8", "--engine", given, "--name", name)
    picture = tmp_path / "report.svg"
    compare = ("evaluate", "--compare", f"{SUITE}/poor", f"{SUITE}/good")
    said = station.run(*compare, "--picture", str(picture)).stdout
    assert f"  + {SUITE}-1-test-0" in said and "−0\n" in said
    assert "The difference in pass@1" in said and "flipped signs)" in said
    for name in ("pass@1", "score", "steps", "failed calls", "no call"):
        assert any(line.startswith(name) for line in said.splitlines()), name
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("words", "code", "cause"),
    [
        ((), 2, "Name a suite or a file"),
        (
            (SUITE, "--compare", "a", "b"),
            2,
            "Name a suite or a file",
        ),
        (("--compare", f"{SUITE}/poor", "other.json"), 1, "have no world in common"),
        (("nonsense",), 66, "There is no suite 'nonsense'"),
        (("--compare", "a/b", "a/c"), 66, "There is no result"),
        ((SUITE, "--policy", "policy@9"), 2, "takes no policies"),
        ((SUITE, "--before", "base", "--policy", "policy@9"), 2, "takes no policies"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_in_a_sentence(
    station: Station, engine: str, words: tuple[str, ...], code: int, cause: str
) -> None:
    if "other.json" in words:
        other = json.loads((station.home / "suites" / SUITE / "poor.json").read_text())
        file = station.folder / "other.json"
        file.write_text(json.dumps({**other, "suite": "word-worlds"}))
        words = (*words[:-1], str(file))
    given = words if "--compare" in words else (*words, "--engine", engine)
    rollouts = station.query("SELECT count(*) FROM rollouts")
    said = station.run("evaluate", *given, code=None)
    assert cause in said.stderr and said.returncode == code
    assert station.query("SELECT count(*) FROM rollouts") == rollouts, "nothing was run"
