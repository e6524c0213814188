"""`houston train sft` as people call it: under the daemon, refused, and gone on with."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from houston_daemon.commands import train_sft_commands
from houston_daemon.training.rows.training_row import RowOptions
from houston_daemon.training.runs import run_folder
from houston_daemon.training.sft import create_run
from houston_daemon.training.sft.sft_run_folder import RunFolder
from houston_shared.config import load_configuration
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.policy_and_run_files import training_folder
from tests.support.small_tokenizer import small_tokenizer
from tests.support.station import Station
from tests.training.sft import tiny

FAST = ("--set", "batch=4", "--set", "pack_tokens=64", "--set", "precision=fp32")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_model(tmp_path_factory.mktemp("base"))


STEPS: list[dict[str, Any]] = [
    {"thought": "look", "calls": [{"name": "noop", "arguments": {"text": "apples"}}]},
    {"thought": "read", "calls": [{"name": "noop", "arguments": {"text": "pears"}}]},
]


@pytest.mark.slow
def test_from_rollouts_to_a_policy_under_the_daemon(station: Station) -> None:
    """Rows are rendered for the model that is trained; the home tells what became of them."""
    base = tiny.save_model(station.folder / "base", vocab_size=400, max_position_embeddings=8192)
    tokenizer = Path(small_tokenizer(base))
    station.start()
    task = station.task(sandbox="none")
    task.write_text(task.read_text().replace("sandbox =", 'environment = "null"\nsandbox ='))
    rollouts = station.rollout(task, station.script(STEPS), 2)
    for rollout in rollouts:
        station.ended(rollout)
    station.run("verdict", rollouts[0], "2", "mask", "--reason", "it knew already")
    words = ("train", "sft", "--task", "probe", "--base", str(base), "--name", "reader", *FAST)
    words += ("--dialect", "chatml-json", "--set", "steps=2", "--window", "8192")
    process = station.run(*words, "--json", timeout=280)
    (output,) = (json.loads(line) for line in process.stdout.splitlines())
    assert output["state"] == "finished" and output["policy"] == "reader@2", process.stderr
    folder = Path(output["folder"])
    exported = [json.loads(line) for line in (folder / "data" / "data.jsonl").open()]
    text = Tokenizer.from_file(str(tokenizer))
    taught = [text.decode([id for id in row["labels"] if id != -100]) for row in exported]
    assert "it knew already" not in "".join(taught)
    assert sum("pears" in words for words in taught) == 1, "the masked step taught nothing"
    assert "finish" not in "".join(taught), "it had no score; nobody ran a rule by hand"
    assert "Of 6 steps rules mask 2; nobody judged 5 (83 %)" in process.stderr
    assert output["result"]["rows"] == len(exported) == 2
    assert "step 2 of 2" in process.stderr
    (run,) = station.json("train", "list")
    assert run["state"] == "finished" and run["policy"] == "reader@2"
    policies = {row["policy"] for row in station.json("policy", "list")}
    assert policies == {"reader@1", "reader@2"}
    weights = station.home / "policies" / "reader@2" / "adapter_model.safetensors"
    assert weights.read_bytes() == (folder / "output" / weights.name).read_bytes()
    lineage = json.loads((weights.parent / "lineage.json").read_text())
    assert lineage["run"] == output["run"] and lineage["base"] == str(base)
    assert lineage["metrics"]["rows"] == 2


@pytest.mark.slow
def test_beside_the_daemon_it_is_known_to_it(station: Station) -> None:
    """Nobody waits for it; the trainer itself says what became of it."""
    base = tiny.save_model(station.folder / "base")
    data = tiny.write(station.folder / "data", tiny.rows())
    station.start()
    words = ("train", "sft", "--data", str(data), "--base", str(base), "--alone", "--detach")
    run = station.run(*words, *FAST).stdout.strip()

    def ended() -> bool:
        (listed,) = station.json("train", "list")
        return bool(listed["state"] == "finished" and listed["policy"] == "policy@2")

    assert station.json("train", "list")[0]["run"] == run
    station.until(ended, 200, "the run ends")


@pytest.mark.slow
def test_what_finished_without_a_daemon_becomes_a_policy_with_its_lineage_later(
    station: Station,
) -> None:
    base = tiny.save_model(station.folder / "base")
    data = tiny.write(station.folder / "data", tiny.rows())
    words = ("train", "sft", "--data", str(data), "--base", str(base), *FAST, "--set", "steps=2")
    process = station.run(*words, "--json", timeout=280)
    (output,) = (json.loads(line) for line in process.stdout.splitlines())
    run = output["run"]
    assert (output["state"], output["policy"]) == ("finished", None)
    folder = station.home / "training" / run
    assert (folder / "output.txt").read_text() == "", "libraries' news are for nobody here"
    modes = {file.name: file.stat().st_mode & 0o777 for file in (folder / "output").iterdir()}
    assert set(modes.values()) == {0o600}, modes
    again = ("train", "sft", "--resume", run)
    assert "no daemon runs that could take its policy" in station.run(*again, code=69).stderr
    station.start()
    assert f"{run} became policy@2" in station.run(*again).stdout
    (policy,) = station.json("policy", "show", "policy@2")
    assert (policy["run"], policy["metrics"]["steps"]) == (run, 2)
    (loss,) = [curve for curve in policy["curves"] if curve["name"] == "loss"]
    assert [step for step, _ in loss["points"]] == [1, 2]
    assert loss["points"][0][1] == pytest.approx(policy["metrics"]["loss_first"])
    assert policy["data"]["trained"] > 0
    (listed,) = station.json("train", "list")
    assert (listed["run"], listed["state"], listed["policy"]) == (run, "finished", "policy@2")
    assert "has finished" in station.run(*again, code=1).stderr
    assert len(station.json("policy", "list")) == 2


@pytest.mark.slow
def test_what_failed_for_good_is_not_advised_to_be_tried_again(station: Station) -> None:
    """A run that goes on keeps its max_length."""
    base = tiny.save_model(station.folder / "base")
    data = tiny.write(station.folder / "data", tiny.rows())
    words = ("train", "sft", "--data", str(data), "--base", str(base), *FAST)
    error = station.run(*words, "--set", "max_length=1", code=1, timeout=280).stderr
    assert "within 1 tokens" in error
    assert "a new run" in error and "--set max_length" in error
    assert "--resume" not in error


@pytest.mark.slow
def test_a_run_that_ended_while_no_daemon_ran_is_noticed_by_the_next(station: Station) -> None:
    base = tiny.save_model(station.folder / "base")
    data = tiny.write(station.folder / "data", tiny.rows())
    station.start()
    words = ("train", "sft", "--data", str(data), "--base", str(base), "--alone", "--detach")
    run = station.run(*words, *FAST).stdout.strip()
    station.stop()
    file = station.home / "training" / run / "progress.json"
    station.until(lambda: json.loads(file.read_text())["state"] == "finished", 200, "it ends")
    station.start()

    def listed() -> dict[str, Any]:
        (listed,) = station.json("train", "list")
        return dict(listed)

    station.until(lambda: listed()["state"] == "finished", 60, "the daemon looks into its folder")
    assert f"train sft --resume {run}" in listed()["reason"]
    assert f"{run} became policy@2" in station.run("train", "sft", "--resume", run).stdout
    assert listed()["policy"] == "policy@2"


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "neither rollouts nor data": ({"data": None}, {}, "Name rollouts, or exported data"),
    "no such folder": ({"data": Path("/no/where")}, {}, "There is no folder /no/where"),
    "no base anywhere": ({"settings": ()}, {}, "The model to train is not clear"),
    "a base that is not there": (
        {"settings": ("base=/no/model",)},
        {},
        "There is no folder /no/model",
    ),
    "a base that is none": ({"settings": ("base=/tmp",)}, {}, "has no config.json"),
    "two bases": ({"settings": ()}, {"base": ["a", "b"]}, "names a, b"),
    "ids of another tokenizer": (
        {},
        {"tokenizers": {"/x": "0" * 64}},
        "belong to another tokenizer",
    ),
    "rows for another program": ({}, {"format": "slime"}, "are written for slime"),
    "a setting there is none of": (
        {"settings": ("stepz=3",)},
        {},
        "--set has an unknown key `stepz`",
    ),
    "copies of copies": (
        {"recipe": "apollo"},
        {"recipe": {"name": "apollo", "react": 7, "summary": 10}},
        "copies",
    ),
    "a policy that cannot be named so": ({"name": "a b"}, {}, "cannot name a policy"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_leaves_no_run(tmp_path: Path, base: Path, case: str) -> None:
    change, manifest, cause = REFUSED[case]
    data = tiny.write(tmp_path / "data", tiny.rows())
    (data / "manifest.json").write_text(json.dumps(manifest))
    plain = create_run.TrainingRequest(
        (), data, (), RowOptions(), "small", (f"base={base}",), "policy"
    )
    loaded = load_configuration(str(tmp_path / "home"), None)
    with pytest.raises(HoustonError) as refused:
        create_run.create_run_folder(loaded, plain._replace(**change))
    assert cause in refused.value.cause
    folder = training_folder(loaded.home)
    assert not folder.exists() or not list(folder.iterdir())


def test_data_that_were_made_for_other_roles_are_refused(tmp_path: Path, base: Path) -> None:
    data = tiny.write(tmp_path / "data", tiny.rows())
    (data / "manifest.json").write_text('{"options": {"roles": ["policy", "summary"]}}')
    settings = (f"base={base}", 'roles=["policy"]')
    asked = create_run.TrainingRequest((), data, (), RowOptions(), "small", settings, "policy")
    with pytest.raises(ConfigurationError) as refused:
        create_run.create_run_folder(load_configuration(str(tmp_path / "home"), None), asked)
    assert "trains the roles policy, and the rows of the data are made for" in refused.value.cause
    assert refused.value.next == "Export again with --roles policy"


def test_what_a_killed_command_has_begun_is_removed_and_another_ones_is_not(
    tmp_path: Path, base: Path
) -> None:
    loaded = load_configuration(str(tmp_path / "home"), None)
    folders = training_folder(loaded.home)
    unfinished = {name: folders / f".sft-{name}" for name in ("killed", "at work", "just now")}
    for folder in unfinished.values():
        folder.mkdir(parents=True)
    lock = run_folder.take_folder(unfinished["at work"])
    (unfinished["killed"] / run_folder.LOCK_NAME).touch()
    for name in ("killed", "at work"):
        os.utime(unfinished[name], (0, 0))
    data = tiny.write(tmp_path / "data", tiny.rows())
    request = create_run.TrainingRequest(
        (), data, (), RowOptions(), "small", (f"base={base}",), "policy"
    )
    folder = create_run.create_run_folder(loaded, request)
    os.close(lock)
    assert {path.name for path in folders.iterdir()} == {
        ".sft-at work", ".sft-just now", folder.path.name
    }  # fmt: skip
    run_folder.require_no_trainer(folder.path)


def test_a_run_that_goes_on_keeps_what_decides_its_results(tmp_path: Path, base: Path) -> None:
    data = tiny.write(tmp_path / "data", tiny.rows())
    loaded = load_configuration(str(tmp_path / "home"), None)
    folder = create_run.create_run_folder(
        loaded,
        create_run.TrainingRequest(
            (), data, (), RowOptions(), "small", (f"base={base}",), "policy"
        ),
    )
    run = folder.path.name
    outside = tmp_path / "outside"
    folder.path.rename(outside)
    with pytest.raises(HoustonError, match="is no training run"):
        create_run.request_resume(loaded, f"../../{outside.name}", [])
    outside.rename(folder.path)
    with pytest.raises(HoustonError, match="learning_rate cannot change"):
        create_run.request_resume(loaded, run, ["learning_rate=1"])
    changed = create_run.request_resume(loaded, run, ["pack_tokens=77"])
    assert changed.recipe.pack_tokens == 77
    assert changed.recipe.base == str(base)
    with pytest.raises(HoustonError, match="There is no training run"):
        create_run.request_resume(loaded, "no-such-run", [])


GPUS: dict[str, tuple[list[str], list[str], tuple[int, bool]]] = {
    "as it was started": (["--gpus", "8", "--share-gpus"], [], (8, True)),
    "other ones by a flag": (
        ["--gpus", "8", "--share-gpus"],
        ["--gpus", "2", "--no-share-gpus"],
        (2, False),
    ),
    "on the CPU, where there were some": (
        ["--gpus", "8", "--share-gpus"],
        ["--set", "device=cpu"],
        (0, True),
    ),
    "one of this host, as nobody said": ([], [], (1, False)),
    "none, as was said": (["--gpus", "0"], [], (0, False)),
}


@pytest.mark.parametrize("case", GPUS)
def test_a_run_goes_on_with_the_gpus_that_it_had(tmp_path: Path, base: Path, case: str) -> None:
    first, again, expected = GPUS[case]
    data = tiny.write(tmp_path / "data", tiny.rows())
    home = tmp_path / "home"
    home.mkdir()
    (home / "houston.toml").write_text("[hosts]\ngpus = 4\n")
    loaded = load_configuration(str(home), None)
    parser = argparse.ArgumentParser()
    train_sft_commands.add_train_sft_arguments(parser)

    def run_folder(*words: str) -> tuple[RunFolder, int]:
        arguments = parser.parse_args(list(words))
        planned = train_sft_commands._plan_run(arguments, loaded)
        spec = planned if arguments.resume else train_sft_commands._make_run(arguments, loaded)
        folder = RunFolder(training_folder(loaded.home) / spec.run)
        folder.write_spec(spec)
        return folder, train_sft_commands._gpu_count(arguments, loaded, planned)

    folder, _ = run_folder("--data", str(data), "--base", str(base), *first)
    folder, gpus = run_folder("--resume", folder.path.name, *again)
    assert (gpus, folder.spec.share_gpus) == expected


def test_commands_and_the_daemon_need_no_torch() -> None:
    """Asking, following, launching: a command that starts training is not training."""
    code = (
        "import sys; import houston_daemon.commands.train_sft_commands; "
        "import houston_daemon.training.sft.sft_launch; "
        "print([m for m in ('torch', 'transformers', 'datasets', 'pyarrow') if m in sys.modules])"
    )
    words = [sys.executable, "-c", code]
    process = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert process.stdout.strip() == "[]", process.stderr
