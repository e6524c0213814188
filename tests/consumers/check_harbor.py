"""Harbor's own code on our trajectories and on the tasks that we import."""

import json
import subprocess
from pathlib import Path

import pytest

from houston_daemon.importers.harbor_importer import convert_task
from houston_daemon.interchange.atif_export import write_trajectories
from houston_daemon.interchange.import_files import read_imports
from houston_shared.store.store_reader import Reader
from tests.consumers.environments import python_of, run_in
from tests.integration.interchange.conftest import FILES
from tests.integration.tasks.test_harbor_importer import TASK, write_task
from tests.training.export.conftest import Scene

pytestmark = pytest.mark.timeout(600)


def test_its_validator_takes_our_trajectories(scene: Scene, tmp_path: Path) -> None:
    """With summaries, a branch, masked steps and guidance."""
    scene.stage.judge(scene.short.id, 1, "mask")
    with Reader(scene.home) as reader:
        written = list(write_trajectories(reader, scene.ids, tmp_path))
    read = run_in("harbor", "read_with_harbor.py", tmp_path)
    assert read["trajectories"] == {one.rollout: [] for one in written}


def test_its_validator_finds_what_is_wrong(tmp_path: Path) -> None:
    """So that the test above could fail."""
    document = json.loads((FILES / "trial/agent/trajectory.json").read_text())
    del document["agent"]["version"]
    (tmp_path / "wrong.json").write_text(json.dumps(document))
    (errors,) = run_in("harbor", "read_with_harbor.py", tmp_path)["trajectories"].values()
    assert "agent.version" in errors[0]


def test_what_its_models_write_is_what_the_other_tests_read(tmp_path: Path) -> None:
    run_in("harbor", "write_with_harbor.py", tmp_path)
    for name in ("agent/trajectory.json", "result.json"):
        assert (tmp_path / name).read_text() == (FILES / "trial" / name).read_text()
    (message,) = read_imports(tmp_path)
    assert len(message.steps) == 4


def test_its_own_example_of_a_task_is_imported(tmp_path: Path) -> None:
    """`harbor init`, with what its author is to fill in; and the task of the other tests."""
    harbor = python_of("harbor").with_name("harbor")
    words = [python_of("harbor"), harbor, "init", "houston/example", "--task", "--no-pytest"]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    example = tmp_path / "example"
    (example / "instruction.md").write_text("Write /app/hello.txt.\n")
    write_task(tmp_path / "hello")
    read = run_in("harbor", "read_with_harbor.py", tmp_path)
    assert read["tasks"] == {"example": "houston/example", "hello": "houston/hello-world"}
    for name in read["tasks"]:
        scratch = tmp_path / f"{name}-scratch"
        scratch.mkdir()
        task = convert_task(tmp_path / name, scratch, without_image=True)
        assert task.tables["sandbox"]["workdir"] == "/app"
    assert "houston/hello-world" in TASK
