"""`houston task image`: an image of podman or docker becomes the programs of one's own task."""

import json
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from houston_daemon.importers.container_image import find_container_engine
from tests.support.small_image import MARK, make_root, make_tar
from tests.support.station import Station

ENGINE = find_container_engine()
needs_engine = pytest.mark.skipif(not ENGINE, reason="neither podman nor docker works here")
NAME = "localhost/houston-test-task:1"
PLAIN = 'name = "own"\ninstructions = "Look around."\n'
CONTAINERFILE = (
    f"FROM {NAME}\nENV GREETING=hello PATH=/opt/tool:/usr/bin\nWORKDIR /app\nUSER 65534\n"
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_root(tmp_path_factory.mktemp("image") / "root")


@pytest.fixture(scope="module")
def image(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image in the engine's store."""
    tar = make_tar(root, tmp_path_factory.mktemp("tar") / "image.tar")
    subprocess.run([ENGINE, "import", str(tar), NAME], check=True, capture_output=True)
    yield NAME
    subprocess.run([ENGINE, "rmi", "--force", NAME], check=False, capture_output=True)


@pytest.fixture
def task(station: Station) -> Path:
    folder = station.folder / "own"
    folder.mkdir()
    (folder / "task.toml").write_text(PLAIN)
    return folder


def by_name(station: Station, image: str) -> str:
    return image


def by_archive(station: Station, image: str) -> str:
    file = station.folder / "saved.tar"
    words = [ENGINE, "save", "--output", str(file), image]
    subprocess.run(words, check=True, capture_output=True)
    return str(file)


def by_containerfile(station: Station, image: str) -> str:
    folder = station.folder / "build"
    folder.mkdir()
    (folder / "Containerfile").write_text(f"FROM {image}\n")
    return str(folder)


@needs_engine
@pytest.mark.parametrize("source", [by_name, by_archive, by_containerfile])
def test_an_image_becomes_a_file_of_the_task(
    station: Station, task: Path, image: str, source: Callable[[Station, str], str]
) -> None:
    (told,) = station.json("task", "image", "own", source(station, image))
    assert told["written"] == ["sandbox"]
    assert (task / "task.toml").read_text() == f'{PLAIN}\n[sandbox]\nimage = "image.tar"\n'
    with tarfile.open(task / "image.tar") as archive:
        content = archive.extractfile("etc/small-image")
        assert content is not None
        assert content.read().decode() == MARK
    assert sorted(os.listdir(task)) == ["image.tar", "task.toml"]
    station.run("task", "validate", "own")


@needs_engine
def test_a_rollout_runs_in_it_without_network_home_or_other_rollouts(
    station: Station, task: Path, image: str
) -> None:
    (station.folder / "build").mkdir()
    (station.folder / "build/Containerfile").write_text(CONTAINERFILE)
    station.run("task", "image", "own", "build")
    (station.folder / "secret").write_text("of the home")
    command = (
        f"cat /etc/small-image; echo $GREETING; ls {station.folder};"
        " cat /proc/net/dev | tr -d ' ' | tr '\\n' ' ';"
        " ls /usr/mine; touch /usr/mine; ls -d /usr/mine"
    )
    call = {"name": "run_command", "arguments": {"command": command}}
    file = station.folder / "script.jsonl"
    file.write_text(json.dumps({"thought": "t", "calls": [call]}) + "\n")
    station.start()
    for _ in range(2):  # of the second one /usr/mine is its own as well
        (rollout,) = station.rollout(task / "task.toml", f"script:{file}")
        station.ended(rollout)
        seen = station.steps(rollout)[0]["observation"]
        assert MARK in seen
        assert "hello\n" in seen
        assert f"cannot access '{station.folder}'" in seen
        assert "cannot access '/usr/mine'" in seen
        assert "lo:" in seen
        assert not any(name in seen for name in ("eth", "enp", "ens", "wlan")), seen
        assert "/usr/mine\n" in seen


@needs_engine
def test_what_the_task_says_already_is_left_and_named(
    station: Station, task: Path, image: str
) -> None:
    text = f'{PLAIN}\n[sandbox]\nnetwork = true\n\n[environment_variables]\nGREETING = "mine"\n'
    (task / "task.toml").write_text(text)
    (station.folder / "build").mkdir()
    (station.folder / "build/Containerfile").write_text(CONTAINERFILE)
    said = station.run("task", "image", "own", "build").stderr
    assert (task / "task.toml").read_text() == text
    assert 'image = "image.tar"' in said
    assert 'PATH = "/opt/tool:/usr/bin"' in said
    assert "GREETING" not in said
    assert "The image works in /app" in said
    assert "run as root, not as 65534" in said


@needs_engine
@pytest.mark.parametrize(
    ("source", "code", "cause"),
    [
        pytest.param("empty", 66, "has neither a Containerfile nor a Dockerfile", id="folder"),
        pytest.param("own/task.toml", 1, "is no image's archive", id="another file"),
        pytest.param("greedy", 1, "sets KEY to the secret API_KEY", id="a secret of the daemon's"),
        pytest.param("bare", 1, "has no bash, script, tty, which sessions need", id="no shell"),
    ],
)
def test_what_is_no_image_for_sessions_is_refused_and_leaves_nothing(
    station: Station, task: Path, image: str, source: str, code: int, cause: str
) -> None:
    (station.folder / "empty").mkdir()
    (station.folder / "greedy").mkdir()
    greedy = f"FROM {image}\nENV KEY=[secret:API_KEY]\n"
    (station.folder / "greedy/Containerfile").write_text(greedy)
    if source == "bare":
        with tarfile.open(station.folder / "bare.tar", "w") as archive:
            archive.addfile(tarfile.TarInfo("a"))
        source = "localhost/houston-test-bare:1"
        words = [ENGINE, "import", str(station.folder / "bare.tar"), source]
        subprocess.run(words, check=True, capture_output=True)
    assert cause in station.run("task", "image", "own", source, code=code).stderr
    assert os.listdir(task) == ["task.toml"]
    assert (task / "task.toml").read_text() == PLAIN


def test_without_an_engine_it_says_that_only_the_making_needs_one(
    station: Station, task: Path, tmp_path: Path
) -> None:
    station.environment |= {"PATH": str(tmp_path)}
    said = station.run("task", "image", "own", "x", code=78).stderr
    assert "Neither podman nor docker works on this machine. No image was written." in said
    assert "to run it, no engine is needed" in said
