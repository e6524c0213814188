"""Training that goes on from what was trained before: an adapter, full weights, a policy's name."""

import json
from pathlib import Path
from typing import Any

import pytest
from peft import LoraConfig, get_peft_model
from transformers import LlamaForCausalLM

from houston_daemon.training.policies.registering import register
from houston_daemon.training.rows.row import RowOptions
from houston_daemon.training.sft import asking
from houston_daemon.training.sft.progress import Writer
from houston_daemon.training.sft.run_folder import Result, RunFolder
from houston_shared.config import Loaded, load
from houston_shared.errors import HoustonError
from tests.support.station import Station
from tests.training.sft import tiny

FIRST = {"learning_rate": 2e-2, "epochs": 2}
AGAIN = {"learning_rate": 1e-9, "steps": 1}
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "an adapter goes on": ({}, {}, "adapter"),
    "an adapter becomes part of weights that all train": ({}, {"full": True}, "adapter"),
    "full weights go on": ({"full": True}, {"full": True}, "base"),
    "an adapter is trained on full weights": ({"full": True}, {}, "base"),
}


def trained(folder: RunFolder) -> Result:
    from houston_daemon.training.sft.running import train

    tiny.write(folder.data, tiny.rows(), "held_out")
    assert train(folder, Writer(folder.path))
    assert folder.result is not None
    return folder.result


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_model(tmp_path_factory.mktemp("base"))


@pytest.mark.parametrize("kind", KINDS)
def test_it_begins_with_the_loss_at_which_the_other_ended(
    tmp_path: Path, base: Path, kind: str
) -> None:
    first, then, where = KINDS[kind]
    one = tiny.run_folder(tmp_path, base, tiny.rows(), "one", **FIRST, **first)
    ended = trained(one)
    begun = {"base": str(base), where: str(one.output)}
    folder = Path(begun.pop("base"))
    two = tiny.run_folder(tmp_path, folder, tiny.rows(), "two", **AGAIN, **then, **begun)
    goes_on = trained(two)
    assert ended.held_out_before is not None and ended.held_out_after is not None
    assert ended.held_out_after < 0.98 * ended.held_out_before, "it learned something"
    assert goes_on.held_out_before == pytest.approx(ended.held_out_after, rel=1e-5)


def adapter(base: Path, folder: Path, **more: Any) -> Path:
    """A LoRA adapter of a model, with rank 3."""
    made = LoraConfig(**({"r": 3, "lora_alpha": 5, "target_modules": ["q_proj", "o_proj"]} | more))
    get_peft_model(LlamaForCausalLM.from_pretrained(base), made).save_pretrained(folder)
    return folder


def asked(loaded: Loaded, data: Path, *settings: str, name: str = "") -> asking.Asked:
    wanted = asking.Wanted((), data, (), RowOptions(), "small", settings, name)
    return asking.new(loaded, wanted).asked


def test_a_policy_by_its_name_is_the_parent_of_what_comes_out(station: Station) -> None:
    """It keeps the family and the shape of the adapter; another family may begin there, too."""
    base = tiny.save_model(station.folder / "base")
    data = tiny.write(station.folder / "data", tiny.rows())
    station.start()
    loaded = load(str(station.home), None)
    register(loaded, adapter(base, station.folder / "adapter"), base, name="reader")
    words = ("train", "sft", "--data", str(data), "--base", "reader@2", "--set", "steps=1")
    done = station.run(*words, "--set", "pack_tokens=64", "--json", timeout=280)
    assert json.loads(done.stdout)["policy"] == "reader@3", done.stderr
    (policy,) = station.json("policy", "show", "reader@3")
    assert (policy["parent"], policy["rank"]) == ("reader@2", 3)
    recipe = policy["recipe"]
    assert (recipe["base"], recipe["lora_alpha"]) == (str(base), 5)
    assert recipe["lora_targets"] == ["o_proj", "q_proj"]
    assert " from reader@2 " in " ".join(station.run("train", "show", policy["run"]).stdout.split())
    other = asked(loaded, data, "base=reader@3", name="writer")
    assert (other.name, other.parent) == ("writer", "reader@3")
    plain = asked(loaded, data, "base=reader@1")
    assert (plain.name, plain.parent, plain.recipe.base) == ("policy", "", str(base))
    weights = station.home / "policies" / "reader@2" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with pytest.raises(HoustonError, match="not those that were registered as reader@2"):
        asked(loaded, data, "base=reader@2")


REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "a policy there is none of": (("base=policy@2",), "There is no policy 'policy@2'"),
    "a rank that is not the adapter's": (
        ("base={base}", "adapter={adapter}", "lora_rank=8"),
        "lora_rank cannot be set",
    ),
    "an adapter as a model": (("base={adapter}",), "is not the folder of a model"),
    "a model as an adapter": (("base={base}", "adapter={base}"), "holds no LoRA adapter"),
    "an adapter twice": (("base=policy@2", "adapter={adapter}"), "says it, too"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_nothing_can_begin_from_is_refused(station: Station, base: Path, case: str) -> None:
    settings, said = REFUSED[case]
    data = tiny.write(station.folder / "data", tiny.rows())
    places = {"base": base, "adapter": adapter(base, station.folder / "adapter")}
    station.start()
    loaded = load(str(station.home), None)
    with pytest.raises(HoustonError) as refused:
        asked(loaded, data, *(one.format(**places) for one in settings))
    assert said in refused.value.cause


def test_an_adapter_of_another_model_ends_in_a_sentence(tmp_path: Path, base: Path) -> None:
    wide = tiny.save_model(tmp_path / "wide", hidden_size=64)
    folder = tiny.run_folder(
        tmp_path, base, tiny.rows(), adapter=str(adapter(wide, tmp_path / "adapter"))
    )
    with pytest.raises(HoustonError, match="cannot go on with"):
        trained(folder)
