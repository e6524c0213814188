"""A tiny policy from the command to a rollout: its ids in the ledger are those of an episode."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from houston_daemon.suites.word_episodes import WordEpisode, WordSpeaker
from houston_daemon.suites.word_worlds import LEVELS, word_world
from houston_shared.home import Home
from houston_shared.store import step_context, step_queries
from houston_shared.store.store_reader import Reader
from tests.support.station import Station

ENGINE = '[engines.tiny]\nkind = "embedded"\nmodel = "{folder}"\ndialect = "words"\n'


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    made = Station(tmp_path)
    yield made
    made.clear()


@pytest.mark.slow
def test_the_ledger_has_the_ids_of_an_episode(station: Station) -> None:
    folder = station.folder / "tiny"
    words = ("policy", "tiny", "--out", str(folder), "--parameters", "200000")
    few = ("--warm-up", "64", "--passes", "2")  # which may leave it below 5 %
    made = station.run(*words, *few, code=None, timeout=300)
    assert made.returncode in (0, 1) and (folder / "model.safetensors").is_file(), made.stderr
    facts = json.loads((folder / "tiny_policy.json").read_text())
    assert facts["passes"] >= 1 and 100_000 < facts["parameters"] < 400_000
    station.home.mkdir()
    (station.home / "houston.toml").write_text(ENGINE.format(folder=folder))
    station.start()
    (figures,) = station.json("suite", "run", "word-worlds", "--engine", "tiny", "-n", "4")
    assert figures["worlds"] == 4 and figures["unfinished"] == 0
    run = json.loads(Path(figures["file"]).read_text())
    speaker = WordSpeaker(folder / "tokenizer.json")
    for world in run["worlds"]:
        (attempt,) = world["attempts"]
        episode = WordEpisode(speaker, word_world(LEVELS["medium"], "test", world["index"]), 8)
        with Reader(Home(station.home)) as reader:
            for step in reader.run(step_queries.read_steps(attempt["rollout"])):
                prompt = reader.run(step_context.read_prompt_ids(step.sample_seq))
                assert prompt == episode.ids, f"step {step.step}"
                assert step.sample.logprob_kind == "policy"
                episode.step(step.sample.token_ids or ())
        assert (episode.done, episode.score) == (True, attempt["score"])
        assert episode.failures == attempt["failures"]


def test_a_folder_that_is_not_empty_is_left_alone(station: Station) -> None:
    folder = station.folder / "tiny"
    folder.mkdir()
    (folder / "mine.txt").write_text("x")
    refused = station.run("policy", "tiny", "--out", str(folder), code=2)
    assert "not an empty folder" in refused.stderr
    assert [file.name for file in folder.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("number", "code", "linked"),
    [(signal.SIGTERM, 143, False), (signal.SIGINT, 130, True)],
    ids=["SIGTERM", "Ctrl-C, a link to an empty folder"],
)
def test_one_that_is_ended_leaves_nothing(
    station: Station, number: int, code: int, linked: bool
) -> None:
    folder = station.folder / "tiny"
    if linked:
        (station.folder / "disk").mkdir(mode=0o700)
        folder.symlink_to("disk")
    words = [sys.executable, "-m", "houston_shared.command", "policy", "tiny", "--out", str(folder)]
    making = subprocess.Popen(
        words, env=station.environment, cwd=station.folder, stderr=subprocess.PIPE, text=True
    )
    begun = "disk/.disk.*/tokenizer.json" if linked else ".tiny.*/tokenizer.json"
    station.until(lambda: any(station.folder.glob(begun)), 120, "it has begun")
    making.send_signal(number)
    _, said = making.communicate(timeout=120)
    assert making.returncode == code
    assert f"Stopped: {folder} was not made." in said and "Traceback" not in said
    assert not any(station.folder.rglob("tokenizer.json"))
    assert (folder.is_symlink(), folder.is_dir()) == (linked, linked)
