"""Training that goes on from what was trained before: an adapter, full weights, a policy's name."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from peft import LoraConfig, get_peft_model
from transformers import LlamaForCausalLM

from houston_daemon.training.policies.policy_files import model_hash
from houston_daemon.training.policies.policy_registration import register_policy
from houston_daemon.training.rows.training_row import RowOptions
from houston_daemon.training.runs import run_progress
from houston_daemon.training.runs.run_progress import ProgressWriter
from houston_daemon.training.sft import create_run, run_policies
from houston_daemon.training.sft.sft_run_folder import RunFolder, RunResult
from houston_shared.config import LoadedConfiguration, load_configuration
from houston_shared.errors import HoustonError
from tests.support.station import Station
from tests.support.tiers import sampled
from tests.training.sft import tiny

FIRST = {"learning_rate": 2e-2, "epochs": 2}
AGAIN = {"learning_rate": 1e-9, "steps": 1}
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "an adapter goes on": ({}, {}, "adapter"),
    "an adapter becomes part of weights that all train": ({}, {"full": True}, "adapter"),
    "full weights go on": ({"full": True}, {"full": True}, "base"),
    "an adapter is trained on full weights": ({"full": True}, {}, "base"),
}


def trained(folder: RunFolder) -> RunResult:
    from houston_daemon.training.sft.training_run import train_run

    tiny.write(folder.data, tiny.rows(), "held_out")
    assert train_run(folder, ProgressWriter(folder.path))
    assert folder.result is not None
    return folder.result


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_model(tmp_path_factory.mktemp("base"))


@pytest.mark.parametrize("kind", sampled(KINDS, 2))
def test_it_begins_with_the_loss_at_which_the_other_ended(
    tmp_path: Path, base: Path, kind: str
) -> None:
    first, then, where = KINDS[kind]
    first_run = tiny.run_folder(tmp_path, base, tiny.rows(), "one", **FIRST, **first)
    ended = trained(first_run)
    settings = {"base": str(base), where: str(first_run.output)}
    folder = Path(settings.pop("base"))
    second_run = tiny.run_folder(tmp_path, folder, tiny.rows(), "two", **AGAIN, **then, **settings)
    goes_on = trained(second_run)
    assert ended.held_out_before is not None and ended.held_out_after is not None
    assert ended.held_out_after < 0.98 * ended.held_out_before, "it learned something"
    assert goes_on.held_out_before == pytest.approx(ended.held_out_after, rel=1e-5)


def adapter(base: Path, folder: Path, **more: Any) -> Path:
    """A LoRA adapter of a model, with rank 3."""
    shape = {"r": 3, "lora_alpha": 5, "target_modules": ["q_proj", "o_proj"]} | more
    config = LoraConfig(**shape)
    get_peft_model(LlamaForCausalLM.from_pretrained(base), config).save_pretrained(folder)
    return folder


def create_spec(
    loaded: LoadedConfiguration, data: Path, *settings: str, name: str = ""
) -> create_run.RunSpec:
    request = create_run.TrainingRequest((), data, (), RowOptions(), "small", settings, name)
    return create_run.create_run_folder(loaded, request).spec


@pytest.mark.slow
def test_a_policy_by_its_name_is_the_parent_of_what_comes_out(station: Station) -> None:
    """It keeps the family and the shape of the adapter; another family may begin there, too."""
    base = tiny.save_model(station.folder / "base")
    data = tiny.write(station.folder / "data", tiny.rows())
    station.start()
    loaded = load_configuration(str(station.home), None)
    register_policy(loaded, adapter(base, station.folder / "adapter"), base, name="reader")
    words = ("train", "sft", "--data", str(data), "--base", "reader@2", "--set", "steps=1")
    process = station.run(*words, "--set", "pack_tokens=64", "--json", timeout=280)
    assert json.loads(process.stdout)["policy"] == "reader@3", process.stderr
    (policy,) = station.json("policy", "show", "reader@3")
    assert (policy["parent"], policy["rank"]) == ("reader@2", 3)
    recipe = policy["recipe"]
    assert (recipe["base"], recipe["lora_alpha"]) == (str(base), 5)
    assert recipe["lora_targets"] == ["o_proj", "q_proj"]
    assert " from reader@2 " in " ".join(station.run("train", "show", policy["run"]).stdout.split())
    other = create_spec(loaded, data, "base=reader@3", name="writer")
    assert (other.name, other.parent) == ("writer", "reader@3")
    plain = create_spec(loaded, data, "base=reader@1")
    assert (plain.name, plain.parent, plain.recipe.base) == ("reader", "reader@1", str(base))
    weights = station.home / "policies" / "reader@2" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with pytest.raises(HoustonError, match="not those that were registered as reader@2"):
        create_spec(loaded, data, "base=reader@2")


@pytest.mark.slow
def test_what_could_not_be_registered_is_refused_before_the_first_step(station: Station) -> None:
    """A family has one base model. A run that was to join another's may be renamed."""
    base, other = (
        tiny.save_model(station.folder / name, hidden_size=size)
        for name, size in (("base", 32), ("other", 64))
    )
    data = tiny.write(station.folder / "data", tiny.rows())
    loaded = load_configuration(str(station.home), None)
    early = create_run.create_run_folder(
        loaded,
        create_run.TrainingRequest((), data, (), RowOptions(), "small", (f"base={other}",), ""),
    )
    station.start()
    register_policy(loaded, adapter(base, station.folder / "adapter"), base)
    with pytest.raises(HoustonError, match="are trained from another base model") as refused:
        create_spec(loaded, data, f"base={other}")
    assert "--name" in refused.value.next
    assert [path.name for path in early.path.parent.iterdir()] == [early.path.name], "nothing stays"
    again = ("train", "sft", "--resume", early.path.name, "--set", "steps=1")
    assert "are trained from another" in station.run(*again[:4], code=1).stderr
    with pytest.raises(HoustonError, match="are trained from another"):
        create_run.request_resume(loaded, early.path.name, [], "policy")
    process = station.run(*again[:4], "--name", "other", "--json", timeout=280)
    assert json.loads(process.stdout)["policy"] == "other@2", process.stderr
    with pytest.raises(HoustonError, match=r"has already made other@2"):
        create_run.rename_policy(loaded, early.spec, "another")


CHANGED: dict[str, tuple[str, str]] = {
    "the base": ("base", "is no longer the model"),
    "the adapter": ("adapter", "is no longer the adapter"),
    "the base is gone": ("", "there are no weights in it"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CHANGED)
def test_a_run_goes_on_only_with_what_it_was_asked_for_with(tmp_path: Path, case: str) -> None:
    where, cause = CHANGED[case]
    places = {"base": tiny.save_model(tmp_path / "base")}
    places["adapter"] = adapter(places["base"], tmp_path / "adapter")
    data = tiny.write(tmp_path / "data", tiny.rows())
    loaded = load_configuration(str(tmp_path / "home"), None)
    settings = tuple(f"{key}={folder}" for key, folder in places.items())
    request = create_run.TrainingRequest((), data, (), RowOptions(), "small", settings, "")
    folder = create_run.create_run_folder(loaded, request)
    run_policies.check_base_unchanged(folder)
    (file,) = places[where or "base"].glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-1] + b"!") if where else file.unlink()
    process = subprocess.run(
        [sys.executable, "-m", "houston_daemon.training.sft", str(folder.path)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert process.returncode == 1
    now = run_progress.read_progress(folder.path)
    assert now is not None and now.state == "failed"
    assert cause in now.message and "Nothing was trained further" in now.message
    folder.write_spec(msgspec.structs.replace(folder.spec, base_hash="", adapter_hash=""))
    run_policies.check_base_unchanged(folder)  # an older run, which has not noted it


def test_the_lineage_names_the_base_as_it_was_and_needs_it_no_more(station: Station) -> None:
    base = tiny.save_model(station.folder / "base")
    full = station.folder / "full"
    shutil.copytree(base, full)
    (full / "model.safetensors").write_bytes((base / "model.safetensors").read_bytes() + b" ")
    (full / "tokenizer.json").write_text("{}")
    station.start()
    loaded = load_configuration(str(station.home), None)
    before = model_hash(base)
    shutil.rmtree(base)
    result = register_policy(loaded, full, base, base_hash=before)
    (policy,) = station.json("policy", "show", result.name)
    assert (policy["kind"], policy["base"]) == ("full", str(base))
    assert policy["base_hash"] == before


REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "a policy there is none of": (("base=policy@2",), "There is no policy 'policy@2'"),
    "a rank that is not the adapter's": (
        ("base={base}", "adapter={adapter}", "lora_rank=8"),
        "lora_rank cannot be set",
    ),
    "an adapter as a model": (("base={adapter}",), "is not a model folder"),
    "a model as an adapter": (("base={base}", "adapter={base}"), "holds no LoRA adapter"),
    "an adapter twice": (("base=policy@2", "adapter={adapter}"), "both say what to continue"),
}


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedConfiguration]:
    """A home that has no policy."""
    station = Station(tmp_path_factory.mktemp("empty"))
    station.start()
    yield load_configuration(str(station.home), None)
    station.clear()


@pytest.mark.parametrize("case", REFUSED)
def test_what_nothing_can_begin_from_is_refused(
    empty: LoadedConfiguration, tmp_path: Path, base: Path, case: str
) -> None:
    settings, cause = REFUSED[case]
    data = tiny.write(tmp_path / "data", tiny.rows())
    places = {"base": base, "adapter": adapter(base, tmp_path / "adapter")}
    with pytest.raises(HoustonError) as refused:
        create_spec(empty, data, *(setting.format(**places) for setting in settings))
    assert cause in refused.value.cause


def test_an_adapter_of_another_model_ends_in_a_sentence(tmp_path: Path, base: Path) -> None:
    wide = tiny.save_model(tmp_path / "wide", hidden_size=64)
    folder = tiny.run_folder(
        tmp_path, base, tiny.rows(), adapter=str(adapter(wide, tmp_path / "adapter"))
    )
    with pytest.raises(HoustonError, match="does not fit"):
        trained(folder)


@pytest.mark.parametrize("targets", [("q_proj", "lm_head"), ".*(q_proj|lm_head)"])
def test_an_adapter_on_the_head_is_refused(tmp_path: Path, base: Path, targets: Any) -> None:
    """The head computes the loss from its own weights, and passes the adapter by."""
    new = tiny.run_folder(tmp_path, base, tiny.rows(), "new", lora_targets=targets)
    with pytest.raises(HoustonError, match="names the model's head"):
        trained(new)
    path = adapter(base, tmp_path / "adapter", target_modules=["q_proj", "lm_head"])
    on = tiny.run_folder(tmp_path, base, tiny.rows(), "on", adapter=str(path))
    with pytest.raises(HoustonError, match="names the model's head"):
        trained(on)


def test_full_weights_keep_the_tokenizer_of_their_base_to_the_byte(tmp_path: Path) -> None:
    """Written anew a tokenizer may have another form; ids are told apart by its hash."""
    base = tiny.save_model(tmp_path / "base")
    file = base / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()), indent=None) + "\n")
    folder = tiny.run_folder(tmp_path, base, tiny.rows(), steps=1, full=True)
    trained(folder)
    assert (folder.output / file.name).read_bytes() == file.read_bytes()


def test_what_is_held_out_and_has_nothing_to_train_stops_nothing(
    tmp_path: Path, base: Path
) -> None:
    from houston_daemon.training.sft.training_run import train_run

    folder = tiny.run_folder(tmp_path, base, tiny.rows(), steps=1)
    tiny.write(folder.data, [tiny.row(1, 20, weight=0.0)], "held_out")
    assert train_run(folder, ProgressWriter(folder.path))
    assert folder.result is not None and folder.result.held_out_after is None
    assert "no loss on the held-out rows" in run_progress.log_file(folder.path).read_text()
