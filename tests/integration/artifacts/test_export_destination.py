"""Exports into a store, by the command: whole there, nothing where it was refused."""

from pathlib import Path

import pytest

from houston_daemon.artifacts.artifact_store import ArtifactStore, StoreRefused
from houston_daemon.artifacts.export_destination import open_destination
from houston_shared.errors import HoustonError
from tests.support import s3_server
from tests.support.s3_server import Line
from tests.support.station import Station


@pytest.fixture
def default(tmp_path: Path) -> Path:
    return tmp_path / "default"


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_files_lie_below_the_url_and_the_marker_comes_last(
    any_store: ArtifactStore, default: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    write_file = ArtifactStore.write_file
    monkeypatch.setattr(
        ArtifactStore,
        "write_file",
        lambda store, name, *rest: (order.append(name), write_file(store, name, *rest))[1],
    )
    with open_destination(any_store.url, default, force=False) as to:
        assert to.place == any_store.url
        write(to.folder, manifest_json="{}", rows_jsonl="1\n", a_md="x")
    assert order == ["a.md", "rows.jsonl", "manifest.json"]
    assert any_store.read("rows.jsonl") == b"1\n"
    assert not default.exists()


def test_what_is_there_is_replaced_only_with_force(any_store: ArtifactStore, default: Path) -> None:
    with open_destination(any_store.url, default, force=False) as to:
        write(to.folder, manifest_json="{}", old_jsonl="1\n")
    with (
        pytest.raises(HoustonError, match="is not empty"),
        open_destination(any_store.url, default, force=False),
    ):
        raise AssertionError("nothing is made that has no place")
    with open_destination(any_store.url, default, force=True) as to:
        write(to.folder, manifest_json="{}", new_jsonl="2\n")
    assert sorted(any_store.list("")) == ["manifest.json", "new.jsonl"]


def test_an_export_that_fails_writes_nothing(any_store: ArtifactStore, default: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        open_destination(any_store.url, default, force=False) as to,
    ):
        write(to.folder, rows_jsonl="1\n")
        raise ZeroDivisionError
    assert any_store.list("") == {}


def test_a_refused_export_is_said(store: ArtifactStore, default: Path, line: Line) -> None:
    line.fault = "forbidden"
    with (
        pytest.raises(StoreRefused, match="Access Denied"),
        open_destination(store.url, default, force=False) as to,
    ):
        write(to.folder, manifest_json="{}")


def test_rollouts_are_exported_into_a_store(
    tmp_path: Path, store: ArtifactStore, line: Line
) -> None:
    station = Station(tmp_path)
    station.environment |= s3_server.environment(line)
    call = {"name": "run_command", "arguments": {"command": "true"}}
    station.start()
    try:
        engine = station.script([{"thought": "Look.", "calls": [call]}] * 2)
        (rollout,) = station.rollout(station.task(sandbox="none"), engine)
        station.ended(rollout)
        said = station.run("export", rollout, "--format", "openai", "--out", store.url).stdout
        assert said.startswith(f"{store.url}: ")
        assert store.read("manifest.json").startswith(b"{")
        assert len(store.list("")) >= 3, "rows, card, manifest"
        station.run("export", rollout, "--format", "openai", "--out", store.url, code=2)
        (whole,) = station.json("export", rollout, "--format", "atif", "--out", f"{store.url}-t")
        assert whole["file"].startswith(f"{store.url}-t/")
        assert list(ArtifactStore(f"{store.url}-t").list(""))
    finally:
        station.clear()
