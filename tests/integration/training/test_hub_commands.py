"""Policies and rows to the hub and back, as people type it: the real `huggingface_hub` against a
server of the hub's API."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from huggingface_hub import DatasetCard, ModelCard

from houston_daemon.training.export.export_run import FORMATS
from tests.support.hub_server import TOKEN, HubServer, Repository
from tests.support.small_tokenizer import small_tokenizer
from tests.support.station import Station
from tests.support.tiers import sampled

SLOW = pytest.mark.slow
BASE, ADAPTER, ROWS = "acme/base", "acme/adapter", "acme/rows"
KEY = "rattle-42-lamp-Xy9-Zq7"
"""The token of the hub in a test whose agent reads it, and a secret of a variable in another."""
STEPS: list[dict[str, Any]] = [
    {"thought": "look", "calls": [{"name": "list_files", "arguments": {"path": "."}}], "delay": 4},
    {"thought": "read", "calls": [{"name": "open_file", "arguments": {"path": "README.md"}}]},
    {"thought": "done", "calls": [{"name": "create_file", "arguments": {
        "filename": "answer.txt", "content": "hi\n"}}]},
]  # fmt: skip


class Ready(NamedTuple):
    """A station with a daemon, a guided rollout, and `policy@2`: an adapter of a hub's model."""

    station: Station
    hub: HubServer
    rollout: str
    tokenizer: str

    def run(self, *words: str, code: int = 0) -> str:
        done = self.station.run(*words, code=code)
        return done.stderr if code else done.stdout

    def export(self, *words: str, code: int = 0) -> str:
        more = ["--tokenizer", self.tokenizer, "--dialect", "chatml-json"]
        return self.run("export", self.rollout, *words, *more, code=code)

    def model(self, repo: str) -> dict[str, bytes]:
        return self.hub.models[repo].files


def adapter(folder: Path) -> Path:
    folder.mkdir()
    config = {"peft_type": "LORA", "r": 4, "base_model_name_or_path": str(folder / "base")}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    (folder / "adapter_model.safetensors").write_bytes(b"weights of an adapter")
    return folder


def base_model(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["X"]}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights of a base")
    return folder


def at_hub(station: Station, hub: HubServer) -> Station:
    station.environment |= {
        "HF_ENDPOINT": hub.url, "HF_HOME": str(station.folder / "hf"), "HF_TOKEN": TOKEN,
        "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0",
    }  # fmt: skip
    return station


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ready]:
    folder = tmp_path_factory.mktemp("hub")
    hub = HubServer()
    hub.start()
    hub.add(BASE, base_model(folder / "published"))
    station = at_hub(Station(folder), hub)
    try:
        station.start()
        (rollout,) = station.rollout(station.task(), station.script(STEPS))
        station.run("guide", rollout, "Read README.md first.", "--as", "jane")
        station.ended(rollout)
        station.run("verdict", rollout, "2", "mask", "--reason", "not needed")
        words = [
            "policy",
            "import",
            str(adapter(folder / "made")),
            "--base",
            BASE,
            "--note",
            "by hand",
        ]
        assert station.json(*words) == [{"policy": "policy@2", "known": False}]
        yield Ready(station, hub, rollout, small_tokenizer(folder))
    finally:
        station.clear()
        hub.stop()


@pytest.fixture(autouse=True)
def as_it_was(ready: Ready) -> Iterator[None]:
    yield
    ready.hub.read_only = ready.hub.corrupt = ready.hub.busy = False


# --- policies --------------------------------------------------------------------------------


def test_a_policy_knows_the_commit_of_its_base(ready: Ready) -> None:
    commit = ready.hub.models[BASE].refs["main"]
    shown = json.loads(ready.run("policy", "show", "policy@2", "--json"))
    assert shown["base_origin"] == f"{BASE}@{commit}"
    base = json.loads(ready.run("policy", "show", "policy@1", "--json"))
    assert base["base_origin"] == f"{BASE}@{commit}"


def test_a_pushed_policy_is_pulled_into_another_home(ready: Ready, tmp_path: Path) -> None:
    pushed = json.loads(ready.run("policy", "push", "policy@2", ADAPTER, "--private", "--json"))
    assert ready.hub.models[ADAPTER].private
    commit = ready.hub.models[BASE].refs["main"]
    files = ready.model(ADAPTER)
    card = ModelCard(files["README.md"].decode())
    assert (card.data.base_model, card.data.library_name) == (BASE, "peft")
    assert f"{BASE}@{commit}" in card.text and "by hand" in card.text
    config = json.loads(files["adapter_config.json"])
    assert (config["base_model_name_or_path"], config["revision"]) == (BASE, commit)
    for content in files.values():
        assert str(ready.station.folder).encode() not in content

    other = at_hub(Station(tmp_path), ready.hub)
    try:
        other.start()
        (row,) = other.json("policy", "pull", pushed["origin"], "--name", "found")
        assert (row["policy"], row["origin"]) == ("found@2", pushed["origin"])
        (shown,) = other.json("policy", "show", "found@2")
        assert (shown["origin"], shown["base_origin"]) == (pushed["origin"], f"{BASE}@{commit}")
        weights = Path(other.home, "policies", "found@2", "adapter_model.safetensors")
        assert weights.read_bytes() == b"weights of an adapter"
        (again,) = other.json("policy", "import", pushed["origin"], "--name", "found")
        assert (again["policy"], again["known"]) == ("found@2", True)
    finally:
        other.clear()


def repository(ready: Ready, name: str, **files: bytes) -> str:
    """A model with these files, made anew."""
    named = {key.replace("__", "."): content for key, content in files.items()}
    ready.hub.models[name] = Repository()
    ready.hub.models[name].commit(named)
    return name


CONFIG = json.dumps({"peft_type": "LORA", "r": 4}).encode()
PULLS = [
    pytest.param(
        {"adapter_config__json": CONFIG, "adapter_model__safetensors": b"w",
         "lineage__json": json.dumps({"files": {"adapter_model.safetensors": "0"}}).encode()},
        "is not the file that its lineage names", id="other weights than its lineage",
    ),
    pytest.param(
        {"adapter_config__json": CONFIG, "adapter_model__safetensors": b"w"},
        "was trained from is not known here", id="no base",
    ),
    pytest.param({"README__md": b"hi"}, "holds no policy", id="no weights", marks=SLOW),
    pytest.param(
        {"adapter_config__json": CONFIG, "adapter_model__safetensors": b"w",
         "lineage__json": b"{"}, "is no JSON", id="a broken lineage", marks=SLOW,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("files", "cause"), PULLS)
def test_what_cannot_be_pulled_registers_nothing(
    ready: Ready, files: dict[str, bytes], cause: str
) -> None:
    before = ready.run("policy", "list", "--json")
    said = ready.run("policy", "pull", repository(ready, "acme/odd", **files), code=1)
    assert cause in said and "No policy was registered." in said
    assert ready.run("policy", "list", "--json") == before


PUSHES = [
    pytest.param(
        ["policy@2", "acme/x@main"], "", 78, "has a revision", id="a revision", marks=SLOW
    ),
    pytest.param(["policy@2", "x"], "", 78, "is not a hub id", id="no id", marks=SLOW),
    pytest.param(["policy@2", BASE, "--private"], "", 1, "exists and is public", id="public"),
    pytest.param(
        ["policy@9", "acme/x"], "", 66, "There is no policy", id="no such policy", marks=SLOW
    ),
    pytest.param(["policy@1", "acme/x"], "", 1, "is the base model", id="a base model", marks=SLOW),
    pytest.param(["policy@2", "acme/x"], "read_only", 1, "may not write to acme/x", id="403"),
    pytest.param(["policy@2", "acme/x"], "no token", 1, "requires a token (401)", id="401"),
    pytest.param(["policy@2", "acme/x"], "busy", 75, "no more requests", id="429", marks=SLOW),
    pytest.param(["policy@2", "acme/c"], "corrupt", 1, "are not those pushed", id="corrupted"),
]


@pytest.mark.parametrize(("words", "fault", "code", "cause"), PUSHES)
def test_what_cannot_be_pushed_is_said(
    ready: Ready,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    fault: str,
    code: int,
    cause: str,
) -> None:
    if fault == "no token":
        monkeypatch.delitem(ready.station.environment, "HF_TOKEN")
    elif fault:
        setattr(ready.hub, fault, True)
    said = ready.run("policy", "push", *words, code=code)
    assert cause in said and "bug in Houston" not in said and "Traceback" not in said
    assert "acme/x" not in ready.hub.models


def test_a_policy_that_was_tampered_with_is_not_pushed(ready: Ready) -> None:
    weights = Path(ready.station.home, "policies", "policy@2", "adapter_model.safetensors")
    before = weights.read_bytes()
    weights.write_bytes(b"weights of somebody else")
    try:
        said = ready.run("policy", "push", "policy@2", "acme/tampered", code=1)
    finally:
        weights.write_bytes(before)
    assert "are not those that were registered" in said
    assert "acme/tampered" not in ready.hub.models


@pytest.mark.slow
def test_a_merged_model_takes_the_place_of_the_adapter(ready: Ready, tmp_path: Path) -> None:
    """And none of the adapter's files stays, by which a reader would take it for one."""
    import peft
    from transformers import AutoModelForCausalLM

    from tests.training.sft import tiny

    base = tiny.save_model(tmp_path / "base")
    ready.hub.add("acme/tiny", base)
    net = AutoModelForCausalLM.from_pretrained(base)
    shape = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    peft.get_peft_model(net, shape).save_pretrained(tmp_path / "adapter")
    words = ["policy", "import", str(tmp_path / "adapter"), "--base", "acme/tiny", "--name", "t"]
    assert ready.station.json(*words)[0]["policy"] == "t@2"
    ready.run("policy", "push", "t@2", "acme/merged")
    ready.run("policy", "push", "t@2", "acme/merged", "--merged")
    files = ready.model("acme/merged")
    assert "model.safetensors" in files and "tokenizer.json" in files
    assert not [name for name in files if name.startswith("adapter")]
    card = ModelCard(files["README.md"].decode())
    assert (card.data.base_model, card.data.library_name) == ("acme/tiny", "transformers")
    (pulled,) = ready.station.json("policy", "pull", "acme/merged", "--name", "t")
    assert pulled["policy"] == "t@3"


def test_a_secret_in_the_files_of_a_policy_is_not_pushed(ready: Ready, tmp_path: Path) -> None:
    folder = adapter(tmp_path / "adapter")
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, "note": KEY}))
    words = ["policy", "import", str(folder), "--base", BASE, "--name", "leaky", "--json"]
    name = json.loads(ready.run(*words))["policy"]
    ready.station.environment["LAMP_KEY"] = KEY
    try:
        said = ready.run("policy", "push", name, "acme/leaky", code=1)
    finally:
        del ready.station.environment["LAMP_KEY"]
    assert "of adapter_config.json holds a secret. Nothing was pushed." in said
    assert "acme/leaky" not in ready.hub.models


# --- rows ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "format", sampled((name for name in FORMATS if not FORMATS[name].credited), 3)
)
def test_rows_become_a_data_set_with_a_card(ready: Ready, tmp_path: Path, format: str) -> None:
    """Of every consumer's format: what was kept, what is masked and why, whose words, which
    policies; and no name of a person or folder of this machine."""
    out = tmp_path / "out"
    told = json.loads(
        ready.export("--format", format, "--out", str(out), "--push", f"{ROWS}-{format}", "--json")
    )
    files = ready.hub.datasets[f"{ROWS}-{format}"].files
    assert told["pushed"].startswith(f"{ROWS}-{format}@")
    written = {str(f.relative_to(out)) for f in out.rglob("*") if f.is_file()}
    assert set(files) - {".gitattributes"} == written
    for name in written - {"README.md", "manifest.json"}:
        assert files[name] == (out / name).read_bytes()
    card = DatasetCard(files["README.md"].decode())
    assert format in card.data.tags
    (split,) = card.data.to_dict()["configs"][0]["data_files"]
    assert split["path"] in files
    assert "mask: human" in card.text and "person 1: 1 message" in card.text
    assert "base" in card.text.split("## Which policies sampled it")[1]
    for name in ("README.md", "manifest.json"):
        assert b"jane" not in files[name]
        assert str(ready.station.folder).encode() not in files[name]
    manifest = json.loads(files["manifest.json"])
    assert manifest["people"] == {"person 1": 1}
    assert manifest["counts"] == told["counts"]


def test_people_are_named_where_the_configuration_says_so(ready: Ready, tmp_path: Path) -> None:
    ready.station.environment["HOUSTON__EXPORT__PEOPLE_BY_NAME"] = "true"
    try:
        ready.export("--format", "trl", "--out", str(tmp_path / "out"))
    finally:
        del ready.station.environment["HOUSTON__EXPORT__PEOPLE_BY_NAME"]
    assert "- jane: 1 message" in (tmp_path / "out" / "README.md").read_text()


def test_what_an_earlier_push_left_is_not_read_with_the_new_rows(
    ready: Ready, tmp_path: Path
) -> None:
    for number, more in enumerate((["--parquet"], [])):
        out = str(tmp_path / str(number))
        ready.export("--format", "trl", "--out", out, "--push", "acme/twice", *more)
    files = set(ready.hub.datasets["acme/twice"].files)
    assert files == {".gitattributes", "README.md", "data.jsonl", "manifest.json"}


def test_the_token_of_the_hub_is_never_pushed(ready: Ready, tmp_path: Path) -> None:
    """Also where it lies in a file and no variable tells of it: here an agent has read it. Texts
    have a placeholder in its place; rows of ids, which can have none, are refused."""
    station = at_hub(Station(tmp_path), ready.hub)
    token_file = tmp_path / "hf" / "token"
    token_file.parent.mkdir()
    token_file.write_text(KEY)
    ready.hub.tokens.add(KEY)
    try:
        station.start()
        steps = [{**STEPS[0], "thought": f"I read {KEY}"}, *STEPS[1:]]
        (rollout,) = station.rollout(station.task(), station.script(steps))
        station.ended(rollout)
        del station.environment["HF_TOKEN"]
        shown = ["export", rollout, "--push", "acme/leak", "--out"]
        station.run(*shown, "texts", "--format", "slime")
        tokens = ["--tokenizer", ready.tokenizer, "--dialect", "chatml-json"]
        said = station.run(*shown, "ids", "--format", "trl", *tokens, code=1).stderr
    finally:
        station.clear()
    data = ready.hub.datasets["acme/leak"].files["data.jsonl"]
    assert b"[secret:HF_TOKEN]" in data and KEY.encode() not in data
    assert "secret" in said and "Nothing was exported" in said
    assert len(ready.hub.datasets["acme/leak"].commits) == 2


def test_a_push_that_fails_leaves_the_export(ready: Ready, tmp_path: Path) -> None:
    ready.hub.read_only = True
    out = tmp_path / "out"
    said = ready.export("--format", "trl", "--out", str(out), "--push", "acme/no", code=1)
    assert "may not write to acme/no" in said
    assert (out / "manifest.json").is_file()
    shutil.rmtree(out)
    said = ready.export("--format", "trl", "--out", str(out), "--push", "no", code=78)
    assert "is not a hub id" in said and not out.exists()
    said = ready.export("--format", "trl", "--out", str(out), "--private", code=2)
    assert "--private is only for a data set" in said and not out.exists()
