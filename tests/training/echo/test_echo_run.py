"""`houston train echo` as people call it: attempts, critiques, refinements and both tracks, with a
real engine and a policy and critic of a few words."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines.chat_server import ChatServer, delta
from tests.support.station import Station
from tests.support.tensorboard_events import TENSORBOARD, read_scalars
from tests.support.tiny_policies import tiny_policy
from tests.training.rl.test_rl_run import lines, trainer_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
GROUPS, SIZE = 5, 3
SAID = "You should open another box."
WORDS = (
    *("train", "echo", "--suite", "word-errands", "--engine", "tiny", "--recipe", "echo_small"),
    *("--set", f"groups={GROUPS}", "--set", f"group_size={SIZE}"),
    *("--set", "precision=fp32", "--set", "device=cpu", *TENSORBOARD),
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_policy("errands", tmp_path_factory)


@pytest.fixture
def trained(station: Station, model: Path) -> Station:
    station.home.mkdir(parents=True, exist_ok=True)
    (station.home / "houston.toml").write_text(
        f'[engines.tiny]\nkind = "embedded"\nmodel = "{model}"\ndialect = "words"\n'
    )
    station.start()
    return station


@pytest.fixture
def critic_endpoint(trained: Station) -> Iterator[ChatServer]:
    """An endpoint `wise` that says the same of every attempt."""
    answer = f"<reason>It stopped.</reason><critic>{SAID}</critic>"
    server = ChatServer([[delta(content=answer), delta("stop")]] * 100)
    server.start()
    with (trained.home / "houston.toml").open("a") as file:
        file.write(f'[engines.wise]\nkind = "chat"\nurl = "{server.url}"\nmodel = "m"\n')
    yield server
    server.stop()


def train(station: Station, *more: str) -> dict[str, Any]:
    told = station.run(*WORDS, *more, "--json", timeout=280).stdout.splitlines()[-1]
    return dict(json.loads(told))


def groups_of(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Attempts and refinements of a run."""
    groups = [json.loads(file.read_text()) for file in sorted((folder / "groups").iterdir())]
    refined = [group for group in groups if group.get("refines")]
    return [group for group in groups if not group.get("refines")], refined


def test_both_tracks_are_trained_on_what_their_own_versions_said(trained: Station) -> None:
    told = train(trained, "--set", "updates=2", "--name", "word")
    assert "critic/gain" in read_scalars(Path(told["folder"]))
    first, second = told["updates"]
    assert (first["policy"], second["policy"], told["policy"]) == ("base", "word@2", "word@3")
    assert (first["critic"]["policy"], second["critic"]["policy"]) == ("base", "word-critic@2")
    for update in (first, second):
        critic = update["critic"]
        assert critic["attempts"] == GROUPS and critic["failed"] == 0
        assert critic["critiques"] == SIZE * (GROUPS - critic["full"])
        assert critic["trained_tokens"] > 0 and update["trained_tokens"] > 0
        assert critic["gap_largest"] < 0.1 and update["gap_largest"] < 0.1
        assert critic["loss"]["grad_norm"] > 0 and update["loss"]["grad_norm"] > 0
        assert 0 < critic["cached_refinements"] < 1
    names = {row["policy"] for row in trained.json("policy", "list")}
    assert {"word@3", "word-critic@3"} <= names
    files = {file.name for file in (trained.home / "policies" / "word@3").iterdir()}
    assert "critic" not in files, "a policy has its own adapter alone"
    refinements_say_whence_they_come(trained, Path(told["folder"]))
    what_is_exported_is_what_was_trained(trained, told)


def refinements_say_whence_they_come(station: Station, folder: Path) -> None:
    attempts, refined = groups_of(folder)
    assert {len(group["rollouts"]) for group in attempts} == {1} and refined
    said = {
        attempt["rollout"]: attempt
        for file in (folder / "critiques").iterdir()
        for attempt in json.loads(file.read_text())
    }
    for group in refined:
        critiques = said[group["refines"]]
        texts = [each["text"] for each in critiques["critiques"] if each["text"]]
        attempt = station.show(group["refines"])
        for rollout, text in zip(group["rollouts"], texts, strict=True):
            shown = station.show(rollout)
            assert shown["refines"] == {
                "rollout": group["refines"], "critic": critiques["critic"], "text": text,
            }  # fmt: skip
            assert (shown["seed"], shown["policy"]) == (attempt["seed"], attempt["policy"])


def what_is_exported_is_what_was_trained(station: Station, told: dict[str, Any]) -> None:
    """The rows of the refinements; attempts are compared with nothing."""
    rows = station.home / "rows"
    run = Path(told["folder"]).name
    station.run("export", "--run", run, "--format", "slime-rl", "--out", str(rows))
    exported = [json.loads(line) for line in (rows / "data.jsonl").read_text().splitlines()]
    trained_tokens = sum(update["trained_tokens"] for update in told["updates"])
    assert sum(sum(row["loss_mask"]) for row in exported) == trained_tokens


def test_a_frozen_critic_stays_what_it_was(trained: Station) -> None:
    told = train(trained, "--set", "updates=2", "--set", "critic=frozen")
    assert [update["critic"]["policy"] for update in told["updates"]] == ["base", "base"]
    assert {update["critic"]["trained_tokens"] for update in told["updates"]} == {0}
    assert not [row for row in trained.json("policy", "list") if "critic" in row["policy"]]


def test_a_frozen_critic_is_asked_on_an_engine_of_its_own(
    trained: Station, critic_endpoint: ChatServer
) -> None:
    own = ("--set", "critic=frozen", "--set", "critic_engine=wise", "--set", "updates=1")
    told = train(trained, *own)
    (update,) = told["updates"]
    critic = update["critic"]
    assert critic["policy"] == "wise" and critic["malformed"] == 0
    assert critic["critiques"] == len(critic_endpoint.asked) == SIZE * (GROUPS - critic["full"])
    assert update["trained_tokens"] > 0 and critic["trained_tokens"] == 0
    _, refined = groups_of(Path(told["folder"]))
    shown = trained.show(refined[0]["rollouts"][0])["refines"]
    assert (shown["critic"], shown["text"]) == ("wise", SAID)


def test_a_trainer_that_is_killed_goes_on_with_the_same_critiques_and_losses(
    trained: Station,
) -> None:
    """Both tracks: weights, optimizers and what was sampled."""
    words = ("--set", "updates=4", "--set", "save_updates=2", "--detach")
    run = trained.run(*WORDS, *words).stdout.strip()
    folder = trained.home / "training" / run
    trained.until(lambda: len(lines(folder)) >= 3, 250, "three updates are trained")
    before = lines(folder)[:3]
    kept = {file: file.read_bytes() for file in (folder / "critiques").iterdir()}
    os.kill(trainer_of(folder), signal.SIGKILL)
    trained.until(
        lambda: trained.json("train", "list")[0]["state"] == "finished", 250, "the run ends"
    )
    after = lines(folder)
    assert len(after) == 4
    for old, new in zip(before, after, strict=False):
        for name in ("policy", "sampling", "trained_tokens", "loss"):
            assert new[name] == old[name], name
        for name in ("policy", "gain", "trained_tokens", "loss"):
            assert new["critic"][name] == old["critic"][name], f"critic's {name}"
    assert all(file.read_bytes() == body for file, body in kept.items())
    attempts, refined = groups_of(folder)
    started = sum(len(group["rollouts"]) for group in (*attempts, *refined))
    assert trained.query("SELECT count(*) FROM rollouts") == [(started,)]


@pytest.mark.parametrize(
    ("settings", "code", "cause"),
    [
        (("critic_policy=nobody@2",), 66, "There is no policy 'nobody@2'"),
        (("critic=none", "critic_policy=x@1"), 78, "critic_policy needs a critic"),
        (("critic=trained", "critic_engine=tiny"), 78, "a critic that is not trained"),
        (("critic=frozen", "critic_engine=none"), 66, "'none'"),
        (("ahead=1",), 78, "nothing to begin ahead"),
        (("gain_smoothing=0",), 78, "gain_smoothing"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_a_sentence(
    trained: Station, settings: tuple[str, ...], code: int, cause: str
) -> None:
    flags = [word for setting in settings for word in ("--set", setting)]
    said = trained.run(*WORDS, *flags, code=code).stderr
    assert cause in " ".join(said.split())
    assert trained.json("train", "list") == []
