"""`houston train sft` as people call it: under the daemon, refused, and gone on with."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.training.sft import asking
from houston_shared.config import load
from houston_shared.errors import HoustonError
from houston_shared.policy_names import training_folder
from tests.support.station import Station
from tests.training.sft import tiny

FAST = ("--set", "batch=4", "--set", "pack_tokens=64", "--set", "precision=fp32")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_model(tmp_path_factory.mktemp("base"))


def test_under_the_daemon_it_becomes_a_policy(station: Station, base: Path) -> None:
    """And the home tells of it: the run, the version, where it comes from."""
    data = tiny.write(station.folder / "data", tiny.rows())
    (data / "manifest.json").write_text(json.dumps({"base": [str(base)]}))
    station.start()
    words = ("train", "sft", "--data", str(data), "--name", "counter", *FAST)
    done = station.run(*words, "--json", timeout=280)
    (told,) = (json.loads(line) for line in done.stdout.splitlines())
    assert told["state"] == "finished" and told["policy"] == "counter@2"
    assert told["result"]["rows"] == len(tiny.LENGTHS)
    assert "step 6 of 6" in done.stderr
    (run,) = station.json("train", "list")
    assert run["state"] == "finished" and run["policy"] == "counter@2"
    listed = {one["policy"]: one for one in station.json("policy", "list")}
    assert set(listed) == {"counter@1", "counter@2"}
    made = station.home / "policies" / "counter@2" / "adapter_model.safetensors"
    assert made.read_bytes() == (Path(told["output"]) / made.name).read_bytes()


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "neither rollouts nor data": ({"data": None}, {}, "Name rollouts, or exported data"),
    "no such folder": ({"data": Path("/no/where")}, {}, "There is no folder /no/where"),
    "no base anywhere": ({"settings": ()}, {}, "Which model to train cannot be told"),
    "a base that is none": ({"settings": ("base=/tmp",)}, {}, "has no config.json"),
    "two bases": ({"settings": ()}, {"base": ["a", "b"]}, "names a, b"),
    "ids of another tokenizer": (
        {},
        {"tokenizers": {"/x": "0" * 64}},
        "belong to another tokenizer",
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
    change, manifest, said = REFUSED[case]
    data = tiny.write(tmp_path / "data", tiny.rows())
    (data / "manifest.json").write_text(json.dumps(manifest))
    plain = asking.Wanted((), data, (), "small", (f"base={base}",), "policy")
    loaded = load(str(tmp_path / "home"), None)
    with pytest.raises(HoustonError) as refused:
        asking.new(loaded, plain._replace(**change))
    assert said in refused.value.cause
    folder = training_folder(loaded.home)
    assert not folder.exists() or not list(folder.iterdir())


def test_a_run_that_goes_on_keeps_what_decides_its_results(tmp_path: Path, base: Path) -> None:
    data = tiny.write(tmp_path / "data", tiny.rows())
    loaded = load(str(tmp_path / "home"), None)
    made = asking.new(loaded, asking.Wanted((), data, (), "small", (f"base={base}",), "policy"))
    run = made.path.name
    with pytest.raises(HoustonError, match="learning_rate cannot change"):
        asking.again(loaded, run, ["learning_rate=1"])
    changed = asking.again(loaded, run, ["pack_tokens=77"]).asked
    assert changed.recipe.pack_tokens == 77
    assert changed.recipe.base == str(base)
    with pytest.raises(HoustonError, match="is not the folder of a run"):
        asking.again(loaded, "no-such-run", [])


def test_commands_and_the_daemon_need_no_torch() -> None:
    """Asking, following, launching: a command that starts training is not training."""
    code = (
        "import sys; import houston_daemon.commands.train_sft; "
        "import houston_daemon.training.sft.launch; "
        "print([m for m in ('torch', 'transformers', 'datasets', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
