"""The folder of an export under kills, full disks, other exporters and odd places."""

import fcntl
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.training.export.export_files import ExportFolder
from houston_daemon.training.export.export_run import ExportRequest, write_export
from houston_shared.errors import ExitCode, HoustonError
from tests.training.export.conftest import Scene

ROOT = Path(__file__).parents[3]


def killed(scene: Scene, folder: Path, *more: str) -> list[dict[str, dict[str, str]]]:
    process = subprocess.run(
        [sys.executable, "-m", "tests.training.export.killed_exports",
         str(scene.home.path), str(folder),
         scene.short.id, *more],
        capture_output=True, text=True, check=True, timeout=120, cwd=ROOT,
    )  # fmt: skip
    return [json.loads(line) for line in process.stdout.splitlines()]


def whole(files: dict[str, str]) -> str:
    """The format of a folder that looks whole; it must be."""
    manifest: dict[str, Any] = json.loads(bytes.fromhex(files["manifest.json"]))
    for file in manifest["files"]:
        data = bytes.fromhex(files[file["name"]])
        assert hashlib.sha256(data).hexdigest() == file["sha256"]
    return str(manifest["format"])


def test_a_kill_leaves_nothing_that_looks_whole_and_the_next_export_succeeds(
    scene: Scene, tmp_path: Path
) -> None:
    request = ExportRequest((scene.short.id,))
    reference = write_export(scene.home, request, tmp_path / "reference").folder
    expected = {file.name: file.read_bytes().hex() for file in reference.iterdir()}
    kills = killed(scene, tmp_path / "killed")
    assert len(kills) >= 8
    for kill in kills:
        if "manifest.json" in kill["left"]:
            assert whole(kill["left"]) == "trl"
        assert kill["after"] == expected


def test_a_kill_while_another_export_is_replaced(scene: Scene, tmp_path: Path) -> None:
    """It is the old one, whole, or none, until it is the new one, whole."""
    kills = killed(scene, tmp_path, "--over", "slime")
    formats = [whole(kill["left"]) if "manifest.json" in kill["left"] else "none" for kill in kills]
    assert formats == sorted(formats, key=["slime", "none", "trl"].index)
    assert {"slime", "none"} <= set(formats)
    assert all(whole(kill["after"]) == "trl" for kill in kills)


def test_two_exports_into_one_folder(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "data.jsonl.unfinished").write_text("somebody's")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(HoustonError, match="Another export is being written") as refused:
            write_export(scene.home, ExportRequest(scene.ids), tmp_path)
        assert refused.value.code == ExitCode.BUSY
        assert (tmp_path / "data.jsonl.unfinished").read_text() == "somebody's"
    finally:
        os.close(descriptor)


def test_what_cannot_be_written_is_said(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HoustonError, match="cannot be written"):
        write_export(scene.home, ExportRequest(scene.ids), tmp_path / "file" / "below")
    with pytest.raises(HoustonError, match="cannot be written"):
        write_export(scene.home, ExportRequest(scene.ids), tmp_path / "file")


def test_a_full_disk_leaves_the_old_export(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_export(scene.home, ExportRequest(scene.ids, "slime"), tmp_path / "out")
    before = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HoustonError, match="No space left"):
        write_export(scene.home, ExportRequest(scene.ids, force=True), tmp_path / "out")
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == before


def test_files_are_the_owners_alone(scene: Scene, tmp_path: Path) -> None:
    folder = write_export(scene.home, ExportRequest(scene.ids, "openai"), tmp_path / "out").folder
    assert folder.stat().st_mode & 0o777 == 0o700
    for name in ("data.jsonl", "data.rows.jsonl"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600


def test_an_empty_folder_may_be_there(scene: Scene, tmp_path: Path) -> None:
    assert write_export(scene.home, ExportRequest(scene.ids), tmp_path).written
    assert ExportFolder(tmp_path, False).published() is not None
