"""Rows, recipes and checkpoints as files: what is refused, what is cut, what counts as whole."""

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pyarrow
import pyarrow.parquet
import pytest

from houston_daemon.training.runs import run_checkpoints
from houston_daemon.training.runs.run_progress import ProgressWriter
from houston_daemon.training.sft import (
    sft_dataset,
    sft_launch,
    sft_recipe,
    sft_run_folder,
    training_run,
)
from houston_daemon.training.sft.run_policies import data_manifest_hash
from houston_daemon.training.sft.sft_recipe import SftRecipe
from houston_daemon.training.sft.sft_run_folder import RunFolder, RunResult
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.config_sections import RaySettings
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.home import Home
from tests.training.sft import tiny


def prepared(
    tmp_path: Path, examples: list[dict[str, Any]], longest: int = 512
) -> sft_dataset.MappedRows:
    source = tiny.write(tmp_path / "data", examples) / "data.jsonl"
    target = tmp_path / "rows.arrow"
    sft_dataset.prepare_rows(source, target, longest)
    return sft_dataset.load_rows(target)


@pytest.mark.parametrize("longest", [*range(2, 50, 5), 64, 500])
def test_masks_survive_truncation_at_any_length(tmp_path: Path, longest: int) -> None:
    """A token keeps its weight, whatever was cut after it; nothing else gets one."""
    examples = tiny.rows()
    whole = {example["row"]: example for example in examples}
    trained = [example for example in examples if any(example["weights"][1:longest])]
    if not trained:
        with pytest.raises(HoustonError, match="has a token to train"):
            prepared(tmp_path, examples, longest)
        return
    rows = prepared(tmp_path, examples, longest)
    names = rows.table["row"].to_pylist()
    assert names == [example["row"] for example in trained]
    for row, name in enumerate(names):
        assert rows.ids(row).tolist() == whole[name]["input_ids"][:longest]
        assert rows.weights(row).tolist() == whole[name]["weights"][:longest]
    counts = rows.prepared
    assert counts.cut == sum(example["tokens"] > longest for example in trained)
    assert counts.dropped == tuple(example["row"] for example in examples if example not in trained)
    weights = [weight for example in trained for weight in example["weights"][1:longest]]
    assert counts.trained == sum(weight > 0 for weight in weights)


def test_a_pass_trains_what_the_rows_train_and_nothing_across_them(tmp_path: Path) -> None:
    rows = prepared(tmp_path, tiny.rows())
    inputs = sft_dataset.PassDataset(rows, [], row_lengths=True).make_pass((2, 0, 5))
    ids, at = inputs["input_ids"][0], inputs["predicts"]
    assert inputs["row_lengths"] == [12, 5, 22]
    assert inputs["position_ids"][0].tolist() == [*range(12), *range(5), *range(22)]
    assert (ids[at + 1] == inputs["targets"]).all()
    assert 11 not in at.tolist() and 16 not in at.tolist(), "a row must not predict the next one"
    expected = [
        (row, place)
        for row in (2, 0, 5)
        for place in range(1, tiny.LENGTHS[row])
        if rows.weights(row)[place] > 0
    ]
    assert len(at) == len(expected)


def test_parquet_says_what_json_says(tmp_path: Path) -> None:
    examples = tiny.rows()
    plain = prepared(tmp_path / "a", examples)
    file = tmp_path / "data.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(examples), file)
    sft_dataset.prepare_rows(file, tmp_path / "rows.arrow", 512)
    assert sft_dataset.load_rows(tmp_path / "rows.arrow").table.equals(plain.table)


def test_rows_of_plain_trl_have_the_weights_that_their_labels_mean(tmp_path: Path) -> None:
    examples = tiny.rows()
    plain = [{name: example[name] for name in ("input_ids", "labels")} for example in examples]
    rows = prepared(tmp_path, plain)
    assert [rows.weights(row).tolist() for row in range(len(examples))] == [
        example["weights"] for example in examples
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"labels": [-100] * 5},
        {"weights": [0, 0, 0, 0, -1.0]},
        {"weights": [1.0]},
        {"input_ids": [1, 2, 3]},
    ],
    ids=["labels deny the weights", "a weight below 0", "too few weights", "too few ids"],
)
def test_rows_that_contradict_themselves_are_refused(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    with pytest.raises(HoustonError, match="contradict each other in row 'r0"):
        prepared(tmp_path, [tiny.row(0, 5) | change])


NO_ROWS: dict[str, tuple[Any, str]] = {
    "no object": ([1, 2], "Row 1 of data.jsonl is not an object"),
    "no ids": ({"input_ids": None}, "The input_ids in row 'r1/0.0' of data.jsonl are no list"),
    "one number": ({"input_ids": 7}, "The input_ids in row 'r1/0.0' of data.jsonl are no list"),
    "texts": ({"input_ids": ["a"] * 5}, "The input_ids in row 'r1/0.0' of data.jsonl are no list"),
    "an id that is missing": ({"input_ids": [1, None, 3, 4, 5]}, "are no list of numbers"),
    "lists of lists": ({"input_ids": [[1, 2], [3]]}, "are no list of numbers"),
    "an id of 64 bits": (
        {"input_ids": [1, 2, 3, 4, 2**40]},
        "of data.jsonl are whole numbers",
    ),
    "an id of 100 bits": ({"input_ids": [1, 2, 3, 4, 2**100]}, "are no list of numbers"),
    "half an id": ({"input_ids": [1, 2, 3, 4, 5.5]}, "of data.jsonl are whole numbers"),
    "labels that are missing": (
        {"labels": None},
        "labels in row 'r1/0.0' of data.jsonl are no",
    ),
    "weights that are texts": ({"weights": ["1"] * 5}, "The weights in row 'r1/0.0' of data.jsonl"),
}


@pytest.mark.parametrize("case", NO_ROWS)
def test_what_is_no_row_is_named(tmp_path: Path, case: str) -> None:
    change, cause = NO_ROWS[case]
    second = tiny.row(1, 5) | change if isinstance(change, dict) else change
    with pytest.raises(HoustonError, match=re.escape(cause)):
        prepared(tmp_path, [tiny.row(0, 5), second])
    assert not (tmp_path / "rows.arrow").exists()


@pytest.mark.parametrize(
    ("ids", "cause"),
    [(None, "are no list of numbers"), ([1, 2, 3, 4, 2**40], "are whole numbers of 32 bits")],
    ids=["no ids", "an id of 64 bits"],
)
def test_what_is_no_row_of_parquet_is_named(tmp_path: Path, ids: Any, cause: str) -> None:
    table = pyarrow.Table.from_pylist([tiny.row(0, 5), tiny.row(1, 5) | {"input_ids": ids}])
    pyarrow.parquet.write_table(table, tmp_path / "data.parquet")
    with pytest.raises(HoustonError, match=rf"input_ids in row .r1/0.0. of data\.parquet {cause}"):
        sft_dataset.prepare_rows(tmp_path / "data.parquet", tmp_path / "rows.arrow", 512)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text(json.dumps(tiny.row(0, 5)) + "\n{broken")
    with pytest.raises(HoustonError, match=r"data\.jsonl cannot be read"):
        sft_dataset.prepare_rows(tmp_path / "data.jsonl", tmp_path / "rows.arrow", 512)
    assert not (tmp_path / "rows.arrow").exists()


def test_rows_that_are_not_their_manifests_are_refused(tmp_path: Path) -> None:
    """The lineage of the policy would name a manifest that tells of other rows."""
    base = tiny.save_model(tmp_path / "base")
    folder = tiny.run_folder(tmp_path, base, tiny.rows())
    file = folder.data / "data.jsonl"
    entry = {"name": file.name, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    (folder.data / "manifest.json").write_text(json.dumps({"files": [entry]}))
    file.write_text(json.dumps(tiny.row(0, 5)) + "\n")
    with pytest.raises(HoustonError, match="not the file that the manifest"):
        training_run.train_run(folder, ProgressWriter(folder.path))
    assert not folder.rows.exists()
    tiny.write(folder.data, tiny.rows())
    sft_dataset.prepare_rows(file, folder.rows, 512, folder.hashes[file.name])
    assert sft_dataset.load_rows(folder.rows).prepared.rows == len(tiny.LENGTHS)


def test_the_manifest_of_what_was_trained_is_kept(tmp_path: Path) -> None:
    """Data elsewhere may be exported anew while a run waits or computes."""
    base = tiny.save_model(tmp_path / "base")
    folder = tiny.run_folder(tmp_path, base, tiny.rows(), steps=1)
    (folder.data / "manifest.json").write_text("{}")
    trained = data_manifest_hash(folder.data)
    assert training_run.train_run(folder, ProgressWriter(folder.path))
    (folder.data / "manifest.json").write_text('{"another": 1}')
    folder.keep_manifest()
    assert data_manifest_hash(folder.path) == trained != data_manifest_hash(folder.data)


def test_rows_that_a_power_cut_left_half_are_written_again(tmp_path: Path) -> None:
    whole = prepared(tmp_path, tiny.rows()).table.to_pylist()
    file = tmp_path / "rows.arrow"
    file.unlink()
    file.write_bytes(b"")  # the table above is mapped: never write into a file that is
    assert prepared(tmp_path, tiny.rows()).table.to_pylist() == whole
    file.with_suffix(".json").write_bytes(b"{")
    assert prepared(tmp_path, tiny.rows()).table.to_pylist() == whole


def test_apollo_is_what_the_paper_says() -> None:
    """Section 4.1."""
    recipe = sft_recipe.load_recipe("apollo", [])
    assert recipe.full and (recipe.epochs, recipe.batch) == (1, 64)
    assert (recipe.learning_rate, recipe.final_learning_rate) == (5e-6, 1e-6)
    assert recipe.schedule == "cosine" and recipe.max_length == 128 * 1024
    assert (recipe.upsample.react, recipe.upsample.summary) == (7, 10)


def test_settings_are_laid_over_a_recipe() -> None:
    targets = 'lora_targets=["q_proj"]'
    settings = ["learning_rate=1e-3", "upsample.react=3", "base=/a/model", targets]
    recipe = sft_recipe.load_recipe("small", settings)
    assert (recipe.learning_rate, recipe.upsample.react, recipe.base) == (1e-3, 3, "/a/model")
    assert recipe.lora_targets == ("q_proj",)
    assert sft_recipe.changed_recipe(recipe, ["packing=false"]) == msgspec.structs.replace(
        recipe, packing=False
    )


@pytest.mark.parametrize(
    ("setting", "cause"),
    [
        ("pack_tokns=3", "unknown key `pack_tokns`"),
        ("batch=0", ">= 1"),
        ("schedule=steep", "allowed: cosine, linear, constant"),
        ("batch", "is not key=value"),
        ("upsample.both=2", "unknown key"),
    ],
)
def test_wrong_settings_are_named(setting: str, cause: str) -> None:
    with pytest.raises(ConfigurationError, match=cause):
        sft_recipe.load_recipe("small", [setting])


RISING: dict[str, tuple[list[str], bool]] = {
    "the rate alone is lowered": (["learning_rate=1e-5"], True),
    "both are": (["learning_rate=1e-5", "final_learning_rate=1e-6"], False),
    "it stays where it is": (["learning_rate=2e-5"], False),
    "a schedule that has no such end": (["learning_rate=1e-5", "schedule=linear"], False),
}


@pytest.mark.parametrize("case", RISING)
def test_a_rate_that_would_rise_is_refused(tmp_path: Path, case: str) -> None:
    settings, refused = RISING[case]
    small = sft_recipe.load_recipe("small", [])
    file = tmp_path / "mine.toml"
    file.write_text("learning_rate = 1e-5\nfinal_learning_rate = 2e-5\n")
    with pytest.raises(ConfigurationError, match="above learning_rate"):
        sft_recipe.load_recipe(str(file), [])
    for lay in (
        lambda: sft_recipe.load_recipe("small", settings),
        lambda: sft_recipe.changed_recipe(small, settings),
    ):
        if not refused:
            assert lay().learning_rate <= 2e-5
            continue
        with pytest.raises(ConfigurationError) as refusal:
            lay()
        assert "final_learning_rate (2e-05) is above learning_rate (1e-05)" in refusal.value.cause
        advised = refusal.value.next.partition("--set ")[2]
        assert sft_recipe.load_recipe("small", [*settings, advised]).final_learning_rate < 1e-5


def test_an_older_run_whose_rate_rises_may_go_on() -> None:
    """There the rates cannot be changed any more."""
    older = SftRecipe(learning_rate=1e-5, final_learning_rate=2e-5)
    assert sft_recipe.changed_recipe(older, ["pack_tokens=7"]).pack_tokens == 7


@pytest.mark.parametrize("name", ["small", "apollo"])
def test_lower_rates_that_are_advised_can_be_set(name: str) -> None:
    recipe = sft_recipe.load_recipe(name, [])
    advised = sft_recipe.lower_rate_settings(recipe).replace("--set ", "").split()
    lower = sft_recipe.load_recipe(name, advised)
    assert lower.learning_rate == pytest.approx(recipe.learning_rate / 10)
    assert lower.final_learning_rate == pytest.approx(recipe.final_learning_rate / 10)


def test_every_key_is_explained() -> None:
    """docs/training.md names each, with its default."""
    page = (Path(__file__).parents[3] / "docs" / "training.md").read_text()
    assert [key for key in SftRecipe.__struct_fields__ if f"`{key}`" not in page] == []


def test_several_gpus_are_several_processes(tmp_path: Path) -> None:
    folder = tiny.run_folder(tmp_path, tmp_path, [])
    assert sft_launch.launch_command(folder.path, 0)[1:3] == ["-m", "houston_daemon.training.sft"]
    several = sft_launch.launch_command(folder.path, 4)
    assert several[2] == "accelerate.commands.launch" and "--multi_gpu" in several
    assert several[several.index("--num_processes") + 1] == "4"
    fsdp = tiny.run_folder(tmp_path, tmp_path, [], accelerate=sft_launch.accelerate_file("fsdp"))
    assert "--config_file" in sft_launch.launch_command(fsdp.path, 4)
    with pytest.raises(ConfigurationError, match="packaged are cpu, deepspeed, fsdp"):
        sft_launch.accelerate_file("nothing")


ON_RAY: dict[str, tuple[str, str, int, int]] = {
    # [ray] address, configuration, GPUs; processes that Ray places, 0: accelerate starts them here
    "no cluster": ("", "cpu", 0, 0),
    "as many as the configuration says": ("local", "cpu", 0, 2),
    "as many as GPUs": ("gpu1:6379", "fsdp", 4, 4),
    "without a configuration": ("gpu1:6379", "", 3, 3),
    "one process needs no place": ("gpu1:6379", "", 1, 0),
    "on the processor": ("gpu1:6379", "", 0, 0),
}


@pytest.mark.parametrize("case", ON_RAY)
def test_several_processes_are_placed_by_ray_where_there_is_a_cluster(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, accelerate, gpus, places = ON_RAY[case]
    monkeypatch.setattr(sft_launch, "find_spec", lambda name: name)
    loaded = LoadedConfiguration(
        Configuration(ray=RaySettings(address=address)), Home(tmp_path), "defaults"
    )
    file = sft_launch.accelerate_file(accelerate) if accelerate else ""
    folder = tiny.run_folder(tmp_path, tmp_path, [], accelerate=file)
    ray = sft_launch.ray_address(loaded, folder.spec.recipe, gpus)
    words = sft_launch.launch_command(folder.path, gpus, ray)
    assert ray == (address if places else "")
    assert (sft_launch.RAY_LAUNCH_MODULE in words) == bool(places)
    if places:
        assert words[3:7] == [address, str(places), str(gpus), str(folder.path)]
        split = words.index("--")
        assert words[7:split] == (["--config_file", file] if file else ["--multi_gpu"])
        assert words[split + 1 :] == ["-m", sft_launch.TRAINER_PACKAGE, str(folder.path)]


def test_without_ray_train_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sft_launch, "find_spec", lambda name: None if name == "ray" else name)
    loaded = LoadedConfiguration(
        Configuration(ray=RaySettings(address="local")), Home(tmp_path), "defaults"
    )
    with pytest.raises(ConfigurationError, match="ray is not installed") as refused:
        sft_launch.ray_address(loaded, SftRecipe(accelerate="cpu"), 0)
    assert "houston-agents[ray-train]" in refused.value.next


def test_the_newest_whole_checkpoint_is_found_and_older_ones_go(tmp_path: Path) -> None:
    for step in (5, 10, 15):
        tiny.write_checkpoint(tmp_path, step)
    assert [path.name for path in run_checkpoints.whole_checkpoints(tmp_path)] == [
        "checkpoint-10",
        "checkpoint-15",
    ]


ACROSS: dict[str, tuple[str, str, str, str]] = {
    "the same": ("plain", "", "", ""),
    "several processes with all of it": ("plain", "", "cpu", ""),
    "in shards as before": ("fsdp", "fsdp", "fsdp", ""),
    "plain in shards": ("plain", "", "fsdp", "--set accelerate=; "),
    "shards as plain": ("fsdp", "fsdp", "cpu", "--set accelerate=fsdp"),
    "ZeRO without a word of it": ("deepspeed", "deepspeed", "", "--set accelerate=deepspeed"),
    "shards of another kind": ("fsdp", "fsdp", "deepspeed", "--set accelerate=fsdp"),
    "an older checkpoint": ("", "", "fsdp", ""),
    "back to what it was": ("plain", "fsdp", "", ""),
    "on processors, where nothing is sharded": ("plain", "fsdp", "fsdp", ""),
}


@pytest.mark.parametrize("case", ACROSS)
def test_a_change_is_refused_that_could_not_read_the_optimizer(tmp_path: Path, case: str) -> None:
    """wrote: the kind of the checkpoint; before, then: the configurations of the run."""
    wrote, before, then, advised = ACROSS[case]
    first, second = (sft_launch.accelerate_file(name) if name else "" for name in (before, then))
    folder = tiny.run_folder(tmp_path, tmp_path, [], accelerate=first, device="auto")
    changed = msgspec.structs.replace(folder.spec.recipe, accelerate=second)
    sft_run_folder.check_kind_change(folder, changed)  # there is none yet
    tiny.write_checkpoint(folder.checkpoints, 5, wrote)
    if not advised:
        sft_run_folder.check_kind_change(folder, changed)
        return
    with pytest.raises(HoustonError, match="checkpoint-5 was written") as refused:
        sft_run_folder.check_kind_change(folder, changed)
    assert f"--resume run {advised}" in refused.value.next
    setting = advised.partition("--set ")[2].partition(";")[0]
    good = sft_recipe.changed_recipe(changed, [setting])
    if good.accelerate:
        good = msgspec.structs.replace(good, accelerate=sft_launch.accelerate_file(good.accelerate))
    sft_run_folder.check_kind_change(folder, good)


@pytest.mark.parametrize("text", [None, "distributed_type: [", "\0"])
def test_a_configuration_that_tells_nothing_is_refused_in_a_sentence(
    tmp_path: Path, text: str | None
) -> None:
    file = tmp_path / "mine.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(HoustonError, match=r"mine\.yaml of accelerate cannot be read"):
        sft_run_folder.sharding_kind(SftRecipe(accelerate=str(file)))


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / run_checkpoints.MARKER_FILE).unlink(),
        lambda folder: (folder / "optimizer.pt").write_bytes(b"x" * 99),
        lambda folder: shutil.rmtree(folder / "deep"),
        lambda folder: (folder / run_checkpoints.MARKER_FILE).write_text("{"),
    ],
    ids=["no marker", "a file cut short", "a file gone", "half a marker"],
)
def test_what_is_not_whole_is_passed_over(tmp_path: Path, damage: Any) -> None:
    good = tiny.write_checkpoint(tmp_path, 5)
    damage(tiny.write_checkpoint(tmp_path, 10))
    assert run_checkpoints.newest_checkpoint(tmp_path) == good
    assert tiny.write_checkpoint(tmp_path, 10) == run_checkpoints.newest_checkpoint(tmp_path), (
        "written anew in place"
    )


def test_a_kill_while_one_is_written_leaves_the_one_before(tmp_path: Path) -> None:
    good = tiny.write_checkpoint(tmp_path, 5)
    with run_checkpoints.unfinished_checkpoint(tmp_path) as beside:
        (beside / "checkpoint-10").mkdir()
        (beside / "checkpoint-10" / "optimizer.pt").write_bytes(b"x")
    assert run_checkpoints.newest_checkpoint(tmp_path) == good
    run_checkpoints.clear_unfinished(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-5"]


def test_figures_of_an_older_run_are_read_under_the_name_that_they_have_now(
    tmp_path: Path,
) -> None:
    folder = RunFolder(tmp_path)
    figures = RunResult(
        steps=1, rows=1, tokens=1, trained=1, cut=0, dropped=0, loss_first=2.0,
        loss_mean_last_10=1.5, seconds=1.0, tokens_per_second=1.0, memory_bytes=1, processes=1,
        device="cpu", versions={},
    )  # fmt: skip
    folder.write_result(figures)
    assert folder.result == figures
    file = tmp_path / "result.json"
    file.write_text(file.read_text().replace("loss_mean_last_10", "loss_last"))
    assert folder.result == figures


@pytest.mark.parametrize("wrong", [tiny.WORDS, 151_643, -1])
@pytest.mark.parametrize("stem", ["data", "held_out"])
def test_ids_that_the_model_has_no_embedding_of_are_refused_before_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: int, stem: str
) -> None:
    base = tiny.save_model(tmp_path / "base")
    examples = tiny.rows()
    examples[3]["input_ids"][0] = wrong
    folder = tiny.run_folder(tmp_path, base, tiny.rows())
    tiny.write(folder.data, examples, stem)
    monkeypatch.setattr(
        training_run.sft_model, "load_model", lambda *arguments: pytest.fail("it was loaded")
    )
    with pytest.raises(HoustonError, match=f"token id {wrong}, .* ids 0 to {tiny.WORDS - 1}"):
        training_run.train_run(folder, ProgressWriter(folder.path))
