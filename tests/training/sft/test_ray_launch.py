"""Processes of a run on a Ray cluster, by Ray Train: what they train, and what is lost.

The cluster is real and on this machine: a head that runs nothing, and nodes of one CPU each. The
packages come with the extra `ray-train`, which `make test` does not install.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from safetensors.numpy import load_file

from houston_daemon.training.runs import run_checkpoints, run_progress, trainer_process
from houston_daemon.training.sft import sft_launch
from houston_daemon.training.sft.sft_run_folder import RunFolder
from houston_shared.training_figures import METRICS_NAME, StepMetrics
from tests.support.ray_nodes import RayNodes
from tests.training.sft import tiny
from tests.training.sft.test_trainer_process import FSDP, losses, same_as

pytest.importorskip("ray.train")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
WAIT = 500.0
"""Seconds for a run to get where it is awaited: it imports torch four times for two processes."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_model(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    nodes = RayNodes({})
    for name in ("one", "two", "three"):
        nodes.add(name, cpus=1)
    yield nodes
    nodes.close()


class Launched:
    """A run that Ray Train starts."""

    def __init__(self, nodes: RayNodes, folder: RunFolder, module: str = "") -> None:
        self.folder = folder
        words = sft_launch.launch_command(folder.path, 0, nodes.address)
        words[words.index(sft_launch.TRAINER_PACKAGE)] = module or sft_launch.TRAINER_PACKAGE
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)

    def ended(self) -> int:
        self.said = self.process.communicate(timeout=WAIT)[1]
        return self.process.returncode

    def until(self, reached: Callable[[], Any]) -> Any:
        """Wait until something is true."""
        end = time.monotonic() + WAIT
        while not (found := reached()):
            assert time.monotonic() < end and self.process.poll() is None, "it never got there"
            time.sleep(0.02)
        return found

    def until_logged(self, line: str) -> None:
        file = run_progress.log_file(self.folder.path)
        self.until(lambda: file.exists() and line in file.read_text())

    @property
    def log(self) -> str:
        return run_progress.log_file(self.folder.path).read_text()

    def worker_of(self, rank: int) -> int:
        """The Ray worker that holds the process of a rank: the parent of its first one."""
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:  # it has ended
                continue
            ours = str(self.folder.path) in words and "--machine_rank" in words
            if ours and words[words.index("--machine_rank") + 1] == str(rank):
                status = (entry / "status").read_text()
                parent = int(status.partition("PPid:")[2].split()[0])
                if "trainer_child" not in Path(f"/proc/{parent}/cmdline").read_text():
                    return parent
        raise LookupError(rank)


def last_losses(folder: RunFolder) -> dict[int, float]:
    """The loss of every optimizer step, as it was computed last."""
    lines = (folder.path / METRICS_NAME).read_bytes().splitlines()
    steps = [msgspec.json.decode(line, type=StepMetrics) for line in lines]
    return {each.step: each.loss for each in steps}


def test_what_two_nodes_train_in_shards_is_what_one_process_trains(
    tmp_path: Path, base: Path, nodes: RayNodes
) -> None:
    """FSDP2 over gloo, the table of `test_two_processes_train_what_one_does`."""
    file = tmp_path / "fsdp.yaml"
    file.write_text(FSDP)
    settings: dict[str, Any] = {"full": True, "steps": 2, "save_steps": 1}
    first = tiny.run_folder(tmp_path, base, tiny.rows(), "first", **settings)
    second = tiny.run_folder(
        tmp_path, base, tiny.rows(), "second", accelerate=str(file), **settings
    )
    words = sft_launch.launch_command(first.path, 0)
    assert subprocess.run(words, timeout=WAIT, check=False).returncode == 0
    launched = Launched(nodes, second, "tests.training.sft.sharded")
    assert launched.ended() == 0, launched.said
    same_as(first, second, shards=True)
    last = run_checkpoints.newest_checkpoint(second.checkpoints)
    assert last is not None and run_checkpoints.checkpoint_kind(last) == "fsdp"
    assert not (second.path / "ray").exists(), "what Ray Train keeps is of no use afterwards"


def test_a_lost_worker_and_a_lost_node_cost_only_the_steps_since_the_checkpoint(
    tmp_path: Path, base: Path, nodes: RayNodes
) -> None:
    settings: dict[str, Any] = {"epochs": 12, "save_steps": 3}
    whole = tiny.run_folder(tmp_path, base, tiny.rows(), "whole", **settings)
    words = sft_launch.launch_command(whole.path, 0)
    assert subprocess.run(words, timeout=WAIT, check=False).returncode == 0
    cut = tiny.run_folder(
        tmp_path, base, tiny.rows(), "cut", accelerate=sft_launch.accelerate_file("cpu"), **settings
    )
    launched = Launched(nodes, cut)
    launched.until_logged("checkpoint at step 6")
    os.kill(launched.worker_of(1), signal.SIGKILL)
    launched.until_logged("checkpoint at step 18")
    nodes.kill(nodes.name_of(launched.worker_of(1)))
    assert launched.ended() == 0, launched.said
    assert launched.log.count("was lost with its Ray worker") == 2
    assert launched.log.count("going on from checkpoint-") == 2
    assert len(losses(cut)[1]) == 1, "it began anew"
    expected, actual = last_losses(whole), last_losses(cut)
    assert len(expected) == 36 and actual == pytest.approx(expected, rel=1e-4)
    mine, theirs = (load_file(each.output / "adapter_model.safetensors") for each in (cut, whole))
    assert all(abs(mine[name] - theirs[name]).max() <= 1e-4 for name in theirs)


def test_asked_to_end_all_of_it_saves_and_ends(tmp_path: Path, base: Path, nodes: RayNodes) -> None:
    folder = tiny.run_folder(
        tmp_path, base, tiny.rows(), accelerate=sft_launch.accelerate_file("cpu"), epochs=2_000
    )
    launched = Launched(nodes, folder)
    launched.until_logged("step 3/")
    launched.process.terminate()
    assert launched.ended() == trainer_process.TERMINATED_EXIT_CODE
    progress = run_progress.read_progress(folder.path)
    assert progress is not None and progress.state == "cancelled"
    newest = run_checkpoints.newest_checkpoint(folder.checkpoints)
    assert newest is not None and newest.name == f"checkpoint-{progress.step}"
    assert not folder.output.exists()


@pytest.mark.parametrize("after", [0.0, 0.5, 1.5, 10.0], ids="{:g} s later".format)
def test_what_has_no_place_waits_and_can_be_ended(
    tmp_path: Path, base: Path, nodes: RayNodes, after: float
) -> None:
    """At every moment from its first word on: also while it connects to the cluster."""
    file = tmp_path / "many.yaml"
    cpu = Path(sft_launch.accelerate_file("cpu")).read_text()
    file.write_text(cpu.replace("num_processes: 2", "num_processes: 5"))
    launched = Launched(nodes, tiny.run_folder(tmp_path, base, tiny.rows(), accelerate=str(file)))
    shown = f"waits for 5 places in the Ray cluster {nodes.address}, 1 CPU for each"
    progress = launched.until(
        lambda: (now := run_progress.read_progress(launched.folder.path)) and now.message and now
    )
    assert progress.message == shown
    time.sleep(after)
    launched.process.terminate()
    assert launched.ended() == trainer_process.TERMINATED_EXIT_CODE
    progress = run_progress.read_progress(launched.folder.path)
    assert progress is not None and progress.state == "cancelled"


def test_a_cluster_that_is_not_there_is_named(tmp_path: Path, base: Path) -> None:
    folder = tiny.run_folder(
        tmp_path, base, tiny.rows(), accelerate=sft_launch.accelerate_file("cpu")
    )
    words = sft_launch.launch_command(folder.path, 0, "127.0.0.1:9")
    ended = subprocess.run(words, capture_output=True, text=True, timeout=WAIT, check=False)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith(
        "The Ray cluster 127.0.0.1:9 cannot be reached: "
    )


def test_a_node_without_the_runs_folder_is_named(
    tmp_path: Path, base: Path, nodes: RayNodes
) -> None:
    """All nodes of the test have one file system: it is the recipe that is not there."""
    folder = tiny.run_folder(
        tmp_path, base, tiny.rows(), accelerate=sft_launch.accelerate_file("cpu")
    )
    words = sft_launch.launch_command(folder.path, 0, nodes.address)
    (folder.path / "recipe.json").unlink()
    assert subprocess.run(words, timeout=WAIT, check=False).returncode == 1
    progress = run_progress.read_progress(folder.path)
    assert progress is not None and progress.state == "failed"
    host = socket.gethostname()
    assert f"The node {host} of the Ray cluster does not have {folder.path}." in progress.message
