"""Trackers are told what a training measures, read back by their own means; none ends it."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pytest
from wandb.proto import wandb_internal_pb2

from houston_daemon.training.critic.critic_recipe import critic_recipe
from houston_daemon.training.prm.prm_recipe import load_prm_recipe
from houston_daemon.training.rl.rl_recipe import load_rl_recipe
from houston_daemon.training.runs import run_progress, tracker_choice
from houston_daemon.training.runs.tracker_choice import ReportTo, chosen_trackers
from houston_daemon.training.sft.sft_recipe import load_recipe
from houston_daemon.training.sft.sft_run_folder import RunFolder
from houston_shared.errors import ConfigurationError
from houston_shared.store.policy_queries import PolicyRow
from tests.support.tensorboard_events import read_events, read_scalars
from tests.support.written_home import WrittenHome
from tests.training.sft import tiny

ALL = ("trackio", "wandb", "tensorboard")
RECIPES = {
    "sft": lambda settings: load_recipe("small", settings),
    "dapo": lambda settings: load_rl_recipe("dapo", settings),
    "prm": lambda settings: load_prm_recipe("small", settings),
    "critic": critic_recipe,
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_model(tmp_path_factory.mktemp("base"))


def train(folder: RunFolder, **environment: str) -> str:
    """Run the trainer as the daemon does; what its log says."""
    result = subprocess.run(
        [sys.executable, "-m", "houston_daemon.training.sft", str(folder.path)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return run_progress.log_file(folder.path).read_text()


def log_losses(log: str) -> dict[int, float]:
    """By step."""
    lines = [line.split() for line in log.splitlines() if " step " in line and " loss " in line]
    return {int(words[2].split("/")[0]): float(words[words.index("loss") + 1]) for words in lines}


def steps_told(folder: RunFolder) -> list[int]:
    """Of which TensorBoard has a loss, each as often as it has one."""
    return [event.step for event in read_events(folder.path).Scalars("train/loss")]


def trackio(where: str, *words: str) -> Any:
    """What trackio's own command says."""
    result = subprocess.run(
        [sys.executable, "-m", "trackio.cli", *words, "--project", "houston", "--json"],
        env={**os.environ, "TRACKIO_DIR": where, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(result.stdout)


def wandb_records(folder: RunFolder) -> Iterator[wandb_internal_pb2.Record]:
    """The records of an offline run: a log in LevelDB's format, of W&B's own messages."""
    (file,) = (folder.path / "wandb").glob("offline-run-*/run-*.wandb")
    data = file.read_bytes()
    place, raw = 7, b""
    while place + 7 <= len(data):
        if (room := 32_768 - place % 32_768) < 7:
            place += room
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        raw += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(raw)
            yield record
            raw = b""


def test_every_tracker_is_told_the_same_figures_and_what_the_run_is(
    tmp_path: Path, base: Path
) -> None:
    folder = tiny.run_folder(tmp_path, base, tiny.rows(), report_to=ALL, epochs=2)
    tiny.write(folder.data, tiny.rows(seed=3)[:3], "held_out")
    place = str(tmp_path / "trackio")
    log = train(folder, TRACKIO_DIR=place, WANDB_MODE="offline")
    assert "reporting to trackio: trackio show --project houston\n" in log
    assert "reporting to wandb\n" in log
    assert f"reporting to tensorboard: tensorboard --logdir {tmp_path}\n" in log
    losses = pytest.approx(log_losses(log), abs=1e-4)
    assert len(log_losses(log)) == 6

    told = read_scalars(folder.path)
    assert told["train/loss"] == losses
    assert {name for name in told if name.startswith("held_out/")} == {
        "held_out/before",
        "held_out/after",
    }

    kept = trackio(place, "get", "metric", "--run", "run", "--metric", "train/loss")["values"]
    assert {entry["step"]: entry["value"] for entry in kept} == losses
    config = trackio(place, "get", "run", "--run", "run")["config"]

    records = list(wandb_records(folder))
    history = [
        {".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}
        for record in records
        if (items := record.history.item)
    ]
    assert {row["_step"]: row["train/loss"] for row in history if "train/loss" in row} == losses
    (run,) = (record.run for record in records if record.HasField("run"))
    assert (run.project, run.run_id, run.display_name) == ("houston", "run", "run")
    for asked in (config, {item.key: json.loads(item.value_json) for item in run.config.update}):
        assert asked["houston"] == version("houston-agents")
        assert asked["recipe.learning_rate"] == folder.spec.recipe.learning_rate
        assert asked["name"] == "policy"
        assert "home" not in asked, "a path of this machine is nobody's business"


def test_what_a_policy_comes_from_is_told(tmp_path: Path, base: Path) -> None:
    home = WrittenHome(tmp_path / "home")
    for number, parent in ((2, "policy@1"), (3, "policy@2")):
        columns = dict.fromkeys(PolicyRow.__struct_fields__, "")
        numbers = {"number": number, "seq": 0, "created_at": 0}
        names = {"name": f"policy@{number}", "family": "policy", "kind": "lora", "parent": parent}
        home.insert("policies", **columns | numbers | names)
    home.close()
    folder = tiny.run_folder(tmp_path, base, tiny.rows(), report_to="tensorboard", epochs=1)
    spec = folder.spec
    asked = msgspec.structs.replace(spec, home=str(tmp_path / "home"), parent="policy@3")
    folder.write_spec(asked)
    train(folder)
    (told,) = read_events(folder.path).Tensors("houston/text_summary")
    config = json.loads(told.tensor_proto.string_val[0].decode().strip("`json\n"))
    assert config["lineage"] == "policy@3 < policy@2 < policy@1"
    assert (config["run"], config["houston"]) == ("run", version("houston-agents"))


@pytest.mark.slow
def test_steps_that_are_trained_again_after_a_kill_are_shown_once(
    tmp_path: Path, base: Path
) -> None:
    """The tracker heard of steps that no checkpoint has."""
    folder = tiny.run_folder(
        tmp_path, base, tiny.rows(), report_to="tensorboard", epochs=4, save_steps=2
    )
    script = (
        "import os, sys\n"
        "from houston_daemon.training.runs.run_trackers import RunTrackers\n"
        "told = RunTrackers.on_log\n"
        "def on_log(self, args, state, *more, **rest):\n"
        "    told(self, args, state, *more, **rest)\n"
        "    if state.global_step == 5: os._exit(9)\n"
        "RunTrackers.on_log = on_log\n"
        "from houston_daemon.training.sft.__main__ import main\n"
        "sys.exit(main())\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(folder.path)], check=False)
    assert killed.returncode == 9
    assert steps_told(folder) == [1, 2, 3, 4, 5]
    assert "going on from checkpoint-4" in train(folder)
    assert steps_told(folder) == list(range(1, 13))


def no_key(tmp_path: Path) -> dict[str, str]:
    return {"WANDB_MODE": "online", "WANDB_API_KEY": "", "HOME": str(tmp_path)}


def no_network(tmp_path: Path) -> dict[str, str]:
    server = {"TRACKIO_SERVER_URL": "http://127.0.0.1:9/", "TRACKIO_WRITE_TOKEN": ""}
    return {**server, "TRACKIO_DIR": str(tmp_path / "trackio")}


def no_folder(tmp_path: Path) -> dict[str, str]:
    return {}


FAULTS = [
    pytest.param("wandb", no_key, id="wandb without a key"),
    pytest.param("trackio", no_network, id="trackio with a server it may not write to"),
    pytest.param("tensorboard", no_folder, id="tensorboard where a file is in its place"),
]


@pytest.mark.parametrize(("tracker", "fault"), FAULTS)
def test_a_tracker_that_fails_is_named_once_and_the_training_ends_well(
    tmp_path: Path, base: Path, tracker: str, fault: Any
) -> None:
    folder = tiny.run_folder(tmp_path, base, tiny.rows(), report_to=(tracker,), epochs=1)
    if tracker == "tensorboard":
        (folder.path / "tensorboard").write_text("no folder")
    log = train(folder, **fault(tmp_path))
    (line,) = (line for line in log.splitlines() if tracker in line)
    assert f"{tracker} gets no more figures: " in line
    assert "The training continues" in line
    assert len(log_losses(log)) == 3
    assert folder.result is not None


CHOICES = [
    pytest.param("auto", True, ("trackio",), id="auto where trackio is installed"),
    pytest.param("auto", False, (), id="auto where it is not"),
    pytest.param("none", True, (), id="none"),
    pytest.param((), True, (), id="an empty list, as older runs have it"),
    pytest.param("wandb", True, ("wandb",), id="one"),
    pytest.param(("wandb", "trackio", "wandb"), True, ("wandb", "trackio"), id="one twice"),
]


@pytest.mark.parametrize(("asked", "installed", "chosen"), CHOICES)
def test_which_trackers_a_recipe_means(
    monkeypatch: pytest.MonkeyPatch, asked: ReportTo, installed: bool, chosen: tuple[str, ...]
) -> None:
    monkeypatch.setattr(tracker_choice, "_is_installed", lambda package: installed)
    assert chosen_trackers(asked) == chosen


@pytest.mark.parametrize("kind", RECIPES)
def test_every_trainer_takes_the_setting_and_refuses_what_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    load = RECIPES[kind]
    assert load([]).report_to == "auto"
    assert load(["report_to=none"]).report_to == "none"
    assert load(['report_to=["wandb", "tensorboard"]']).report_to == ("wandb", "tensorboard")
    monkeypatch.setattr(tracker_choice, "_is_installed", lambda package: package != "wandb")
    with pytest.raises(ConfigurationError, match="names wandb, which is not installed") as refused:
        load(["report_to=wandb"])
    assert "houston-agents[trackers]" in refused.value.next
    with pytest.raises(ConfigurationError, match="report_to"):
        load(["report_to=mlflow"])
