"""What `houston policy import` takes over, what it knows already, and what it refuses."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from houston_daemon.training.policies import policy_files
from houston_shared.store.training_event_bodies import PolicyRegistered
from tests.support.station import Station


@pytest.fixture
def base(station: Station) -> Path:
    station.start()
    return model(station.folder / "base")


def model(folder: Path) -> Path:
    """The files of a model, as far as anybody looks who does not sample with it."""
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"base")
    return folder


def adapter(folder: Path, content: bytes) -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 8}))
    (folder / "adapter_model.safetensors").write_bytes(content)
    return folder


def names(station: Station) -> list[str]:
    return [one["policy"] for one in station.json("policy", "list")]


def test_the_very_same_files_are_one_policy(station: Station, base: Path) -> None:
    one, other = (adapter(station.folder / name, name.encode()) for name in ("one", "other"))
    words = ("--base", str(base))
    assert station.json("policy", "import", str(one), *words) == [
        {"policy": "policy@2", "known": False}
    ]
    again = station.run("policy", "import", str(one), *words)
    assert again.stdout.strip() == "policy@2"
    assert "known as policy@2" in again.stderr
    assert station.json("policy", "import", str(other), *words)[0]["policy"] == "policy@3"
    (named,) = station.json("policy", "import", str(one), *words, "--name", "mine")
    assert named == {"policy": "mine@2", "known": False}, "a family of its own was asked for"
    for file in (station.home / "policies" / "policy@2").iterdir():
        assert file.stat().st_mode & 0o777 == 0o600, file


def test_what_a_killed_import_has_left_is_registered_and_its_number_not_lost(
    station: Station, base: Path
) -> None:
    """It was killed when its folder was whole and the daemon knew nothing of it yet."""
    one, other = (adapter(station.folder / name, name.encode()) for name in ("one", "other"))
    words = ("--base", str(base))
    (made,) = station.json("policy", "import", str(one), *words, "--name", "twin")
    lineage = (station.home / "policies" / made["policy"] / policy_files.LINEAGE_FILE).read_bytes()
    said = msgspec.json.decode(lineage, type=PolicyRegistered)
    left = msgspec.structs.replace(said, name="policy@2", folder="policy@2", parent="policy@1")
    policy_files.place_files(one.iterdir(), station.home / "policies" / "policy@2", left)
    assert station.json("policy", "import", str(other), *words)[0]["policy"] == "policy@3"
    assert [name for name in names(station) if name.startswith("policy")] == [
        "policy@1", "policy@2", "policy@3",
    ]  # fmt: skip
    assert station.json("policy", "import", str(one), *words) == [
        {"policy": "policy@2", "known": True}
    ]
    station.run("verify")


def test_what_the_daemon_refuses_leaves_nothing(station: Station, base: Path) -> None:
    one = adapter(station.folder / "one", b"one")
    words = ("policy", "import", str(one), "--base", str(base))
    assert "no policy" in station.run(*words, "--parent", "policy@9", code=66).stderr
    assert station.json(*words)[0]["policy"] == "policy@2"


def test_links_out_of_the_folder_are_refused(station: Station, base: Path) -> None:
    one = adapter(station.folder / "one", b"one")
    elsewhere = station.folder / "secret"
    elsewhere.write_bytes(b"secret")
    (one / "adapter_model.safetensors").unlink()
    os.symlink(elsewhere, one / "adapter_model.safetensors")
    said = station.run("policy", "import", str(one), "--base", str(base), code=1).stderr
    assert "is a link out of the folder" in said
    assert names(station) == []
    within = adapter(station.folder / "within", b"within")
    (within / "adapter_model.safetensors").rename(within / "blob")
    os.symlink("blob", within / "adapter_model.safetensors")
    (made,) = station.json("policy", "import", str(within), "--base", str(base))
    copy = station.home / "policies" / made["policy"] / "adapter_model.safetensors"
    assert copy.read_bytes() == b"within" and not copy.is_symlink()


def test_a_snapshot_of_the_hub_is_taken_with_what_its_links_name(
    station: Station, base: Path
) -> None:
    repository = station.folder / "models--somebody--adapter"
    snapshot = adapter(repository / "snapshots" / "4f2a", b"from the hub")
    (repository / "blobs").mkdir()
    for file in sorted(snapshot.iterdir()):
        file.rename(repository / "blobs" / file.stem)
        file.symlink_to(Path("../../blobs") / file.stem)
    (made,) = station.json("policy", "import", str(snapshot), "--base", str(base))
    copy = station.home / "policies" / made["policy"] / "adapter_model.safetensors"
    assert copy.read_bytes() == b"from the hub" and not copy.is_symlink()


def test_nothing_is_written_over_unless_that_is_said(station: Station, base: Path) -> None:
    """Found before the model is read."""
    one = adapter(station.folder / "one", b"one")
    station.run("policy", "import", str(one), "--base", str(base))
    file = station.folder / "mine.gguf"
    file.write_text("mine")
    words = ("policy", "export", "policy@2", "--out", str(file))
    assert "already exists" in station.run(*words, code=1).stderr
    assert "is a folder" in station.run(*words[:-1], str(one), "--force", code=1).stderr
    said = station.run("policy", "merge", "policy@2", "--out", str(one), "--force", code=1).stderr
    assert "is not empty" in said
    assert file.read_text() == "mine"
    said = station.run(*words, "--force", code=1).stderr
    assert "cannot be merged" in said, "it got past the file to the weights, which are none"


AMONG = ("policies/policy@2", "policies/policy@9", "policies", "link", "link/model.gguf")


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    """A home with one imported policy, and a link to it."""
    station = Station(tmp_path_factory.mktemp("imported"))
    station.start()
    one = adapter(station.folder / "one", b"one")
    station.run("policy", "import", str(one), "--base", str(model(station.folder / "base")))
    (station.home / "link").symlink_to(station.home / "policies" / "policy@2")
    yield station
    station.clear()


@pytest.mark.parametrize("place", AMONG)
def test_nothing_is_written_among_the_policies_of_the_home(imported: Station, place: str) -> None:
    """Their names would stand for other weights than were registered; nor does a link help."""
    out = str(imported.home / place)
    for command in ("merge", "export"):
        said = imported.run("policy", command, "policy@2", "--out", out, "--force", code=1).stderr
        assert "is among the policies of the home" in said
    imported.run("verify")
    assert sorted(one.name for one in (imported.home / "policies").glob("[!.]*@*")) == ["policy@2"]
