"""`houston train dapo` as people call it, with a real engine and a policy that learns from it."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.suites.word_worlds import LEVELS, word_world
from houston_daemon.training.policies.lineage_texts import lineage_texts
from houston_shared.home import Home
from houston_shared.store.store_reader import Reader
from tests.support.station import Station
from tests.support.tensorboard_events import TENSORBOARD, read_scalars
from tests.support.tiny_policies import tiny_policy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
FAST = (
    *("--recipe", "small", "--set", "groups=6", "--set", "group_size=4", "--set", "refill=1"),
    *("--set", "precision=fp32", "--set", "device=cpu", "--set", "report_to=none"),
)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy of few words that solves some of the worlds, so that groups of four differ."""
    return tiny_policy("medium", tmp_path_factory)


@pytest.fixture
def trained(station: Station, policy: Path) -> Station:
    """A station whose engine `tiny` serves that policy."""
    station.home.mkdir(parents=True, exist_ok=True)
    (station.home / "houston.toml").write_text(
        f'[engines.tiny]\nkind = "embedded"\nmodel = "{policy}"\ndialect = "words"\n'
    )
    station.start()
    return station


def train(station: Station, *more: str) -> dict[str, Any]:
    words = ("train", "dapo", "--suite", "word-worlds", "--engine", "tiny", *FAST, *more)
    (told,) = (
        json.loads(line) for line in station.run(*words, "--json", timeout=280).stdout.splitlines()
    )
    return told


def lines(folder: Path) -> list[dict[str, Any]]:
    file = folder / "updates.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def test_each_update_trains_on_the_groups_of_the_version_before(trained: Station) -> None:
    told = train(trained, "--set", "updates=2", "--set", "evaluate_updates=1",
                 "--set", "evaluate_tasks=8", "--set", "refill=4",  # some group differs
                 *TENSORBOARD)  # fmt: skip
    first, second = told["updates"]
    tracked = read_scalars(Path(told["folder"]))
    solved = [update["validation"]["solved"] for update in (first, second)]
    *begun_with, became = tracked["validation/solved"].values()
    assert begun_with == pytest.approx(solved)
    best = max([("base", solved[0]), ("policy@2", solved[1]), (told["policy"], became)],
               key=lambda version: version[1])  # fmt: skip
    known = told["best_validated"]
    assert (known["policy"], known["solved"]) == (best[0], pytest.approx(best[1]))
    shown = trained.run("train", "show", Path(told["folder"]).name).stdout
    assert f"{best[0]} solved most" in shown
    assert {"train/loss", "rollouts/reward", "engine/gap_mean"} <= tracked.keys()
    assert told["state"] == "finished"
    assert (first["policy"], second["policy"]) == ("base", "policy@2")
    assert told["policy"] == "policy@3"
    for update in (first, second):
        assert update["trained_tokens"] > 0
        assert update["sampling"]["rollouts"] == 4 * update["sampling"]["groups"]
        assert update["gap_tokens"] == update["trained_tokens"], "the engine said all of them"
        assert update["gap_largest"] < 0.1, "and nearly what the trainer computes"
        assert update["validation"]["tasks"] == 8
        assert update["sampling"]["stale"] == 0
    assert second["loss"]["entropy"] > 0
    spent = second["seconds"]
    parts = [spent[name] for name in ("saving", "registering", "loading")]
    assert min(parts) > 0 and spent["syncing"] == pytest.approx(sum(parts), abs=0.01)
    assert first["seconds"]["syncing"] == 0, "it had what the run began from"
    assert "syncing " in (Path(told["folder"]) / "log.txt").read_text()
    groups = [json.loads(file.read_text()) for file in Path(told["folder"], "groups").iterdir()]
    for group in groups:
        for rollout in group["rollouts"]:
            wanted = "" if group["policy"] == "base" else group["policy"]
            assert trained.show(rollout)["policy"] == wanted
    assert trained.query("SELECT count(*) FROM rollouts") == [
        (sum(len(group["rollouts"]) for group in groups),)
    ]
    active = [row for row in trained.json("policy", "list") if row.get("active")]
    assert {row["kind"] for row in active} <= {"base"}, "at the end it has what it had before"
    assert trained.json("train", "list")[0]["policy"] == "policy@3"
    what_was_trained_can_be_exported(trained, told)
    its_lineage_says_what_it_was_trained_on(trained, groups)


def what_was_trained_can_be_exported(station: Station, told: dict[str, Any]) -> None:
    """As many rows' tokens as the updates trained, those of dropped groups left out."""
    run = Path(told["folder"]).name
    rows = station.home / "rows"
    station.run("export", "--run", run, "--format", "slime-rl", "--out", str(rows))
    exported = [json.loads(line) for line in (rows / "data.jsonl").read_text().splitlines()]
    trained_tokens = sum(update["trained_tokens"] for update in told["updates"])
    assert sum(sum(row["loss_mask"]) for row in exported) == trained_tokens


def its_lineage_says_what_it_was_trained_on(station: Station, groups: list[dict[str, Any]]) -> None:
    """The tasks of its groups and of those of the version before, each once."""
    home = Home(station.home)
    with Reader(home) as reader:
        known = lineage_texts(home, reader, ["policy@3"])
    worlds = {
        word_world(LEVELS["medium"], "train", group["index"]).instructions
        for group in groups
        if group["split"] == "train"
    }
    told = {trained.text.partition("\n")[0] for trained in known.texts}
    assert told == worlds and not known.unknown


def test_all_weights_are_trained_and_sampled_with(trained: Station) -> None:
    """Each version is a model of its own, with an engine of its own."""
    told = train(trained, "--set", "updates=2", "--set", "full=true",
                 "--set", "learning_rate=1e-4", "--set", "kl=0.01")  # fmt: skip
    first, second = told["updates"]
    assert (first["policy"], second["policy"], told["policy"]) == ("base", "policy@2", "policy@3")
    assert second["gap_tokens"] == second["trained_tokens"] > 0
    assert second["gap_largest"] < 0.1, "the engine samples with what was trained"
    assert second["loss"]["kl"] > 0, "and that is another policy than it was"
    assert second["seconds"]["loading"] > 0
    kinds = dict(trained.query("SELECT name, kind FROM policies"))
    assert kinds["policy@2"] == kinds["policy@3"] == "full"
    engines = trained.query("SELECT DISTINCT policy FROM rollouts ORDER BY policy")
    assert engines == [("",), ("policy@2",)]


def test_a_trainer_that_is_killed_goes_on_with_the_same_groups_and_losses(
    trained: Station,
) -> None:
    """Its checkpoint is older than what it had done: that is trained again, to the same."""
    words = ("train", "dapo", "--suite", "word-worlds", "--engine", "tiny", *FAST)
    run = trained.run(
        *words, "--set", "updates=3", "--set", "save_updates=3", "--detach"
    ).stdout.strip()
    folder = trained.home / "training" / run
    trained.until(lambda: len(lines(folder)) >= 2, 200, "two updates are trained")
    before = lines(folder)[:2]
    groups = {file.name: file.read_bytes() for file in (folder / "groups").iterdir()}
    os.kill(trainer_of(folder), signal.SIGKILL)
    trained.until(
        lambda: trained.json("train", "list")[0]["state"] == "finished", 250, "the run ends"
    )
    after = lines(folder)
    assert len(after) == 3
    for old, new in zip(before, after, strict=False):
        for name in ("policy", "sampling", "trained_tokens", "loss"):
            assert new[name] == old[name], name
    for name, body in groups.items():
        assert (folder / "groups" / name).read_bytes() == body
    started = sum(
        len(json.loads(file.read_text())["rollouts"]) for file in (folder / "groups").iterdir()
    )
    assert trained.query("SELECT count(*) FROM rollouts") == [(started,)]
    names = [row["policy"] for row in trained.json("policy", "list")]
    assert len(names) == len(set(names)) == 4, "no version was registered twice"


def trainer_of(folder: Path) -> int:
    """The process that trains in a folder."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        ours = b"houston_daemon.training.rl" in words and str(folder).encode() in words
        if ours and b"houston_daemon.service.trainer_child" not in words:
            return int(entry.name)
    raise AssertionError("no trainer is at work")


def test_an_engine_that_is_killed_as_it_is_given_a_version_samples_with_it_later(
    trained: Station,
) -> None:
    """Every update trains on what its own version sampled, and engine and trainer agree on it."""
    words = ("train", "dapo", "--suite", "word-worlds", "--engine", "tiny", *FAST)
    refill = ("--set", "refill=2")  # some group differs, so that each update makes a version
    run = trained.run(*words, *refill, "--set", "updates=3", "--detach").stdout.strip()
    folder = trained.home / "training" / run
    progress = folder / "progress.json"

    def giving() -> bool:
        return progress.is_file() and "giving the engine" in progress.read_text()

    trained.until(lambda: any(folder.glob("groups/*")), 120, "rollouts are sampled")
    trained.until(lambda: trained.query("SELECT 1 FROM samples LIMIT 1"), 120, "the engine answers")
    engine = trained.process("engines.embedded")
    deadline = time.monotonic() + 200
    while not giving() and time.monotonic() < deadline:
        time.sleep(0.002)  # it takes a tenth of a second
    assert giving(), "no version was given to the engine"
    os.kill(engine, signal.SIGKILL)
    trained.until(
        lambda: trained.json("train", "list")[0]["state"] == "finished", 250, "the run ends"
    )
    after = lines(folder)
    assert [update["policy"] for update in after] == ["base", "policy@2", "policy@3"]
    assert trained.process("engines.embedded") != engine
    for update in after:
        assert update["sampling"]["stale"] == 0
        assert update["gap_largest"] < 0.1, "sampled by the weights that are trained"


@pytest.mark.parametrize(
    ("words", "code", "cause"),
    [
        (("--suite", "nonsense"), 66, "There is no suite 'nonsense'"),
        (("--engine", "script:x.jsonl"), 2, "gives no token ids"),
        (("--base", "policy@9"), 66, "There is no policy 'policy@9'"),
        (("--set", "group_size=1"), 78, "group_size"),
        (("--recipe", "nonsense"), 66, "There is no recipe nonsense"),
        (("--resume", "no/run"), 2, "--resume takes no --suite, --engine"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_a_sentence(
    trained: Station, words: tuple[str, ...], code: int, cause: str
) -> None:
    asked = ("train", "dapo", "--suite", "word-worlds", "--engine", "tiny", *words)
    said = trained.run(*asked, code=code).stderr
    assert cause in said
    unknown = trained.run("train", "dapo", "--resume", "no/run", code=66).stderr
    assert "There is no training run" in unknown
    assert trained.json("train", "list") == []
