"""Runs as processes: killed, asked to end, out of memory, with a loss that is no number."""

import json
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file

from houston_daemon.training.runs import run_checkpoints, run_folder, run_progress, trainer_process
from houston_daemon.training.sft import __main__ as program
from houston_daemon.training.sft import sft_launch
from houston_daemon.training.sft.sft_run_folder import RunFolder, settle_run
from houston_shared.errors import ExitCode, HoustonError
from tests.training.sft import tiny

WAIT = 120.0
"""Seconds for a process to get where it is awaited, on a machine with much else to do."""


def _program(folder: str, memory: int) -> None:
    """What a child runs: the program itself, with so many bytes of memory more than it has."""
    sys.argv = ["sft", folder]
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 for the rest of this process
    if memory:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
    sys.exit(program.main())


@pytest.fixture(scope="module")
def children() -> Iterator[Any]:
    """Children that start with torch and TRL imported; each is a process with its own memory."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["houston_daemon.training.sft.training_run"])
    yield context


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_model(tmp_path_factory.mktemp("base"))


class Child:
    """A run in a process of its own."""

    def __init__(self, children: Any, folder: RunFolder, memory: int = 0) -> None:
        self.folder = folder
        self.process = children.Process(target=_program, args=(str(folder.path), memory))
        self.process.start()

    def until(self, line: str) -> None:
        """Wait for a line of the log."""
        end = time.monotonic() + WAIT
        file = run_progress.log_file(self.folder.path)
        while not (file.exists() and line in file.read_text()):
            assert time.monotonic() < end and self.process.is_alive(), "it never got there"
            time.sleep(0.01)

    def ended(self) -> int:
        self.process.join(WAIT)
        assert self.process.exitcode is not None
        return int(self.process.exitcode)


@pytest.mark.slow
def test_two_trainers_never_write_into_one_folder(
    children: Any, tmp_path: Path, base: Path
) -> None:
    folder = tiny.run_folder(tmp_path, base, tiny.rows(), epochs=2_000, save_steps=5)
    first = Child(children, folder)
    try:
        first.until("checkpoint at step 5")
        with pytest.raises(HoustonError, match="at work in"):
            run_folder.require_no_trainer(folder.path)
        second = Child(children, folder)
        assert second.ended() == ExitCode.BUSY
        assert settle_run(folder, ExitCode.BUSY).state == "failed", "of the one that was started"
        now = run_progress.read_progress(folder.path)
        assert now is not None and now.state == "running", "the first one's word stands"
        assert run_checkpoints.newest_checkpoint(folder.checkpoints) is not None
    finally:
        first.process.kill()
        first.ended()
    run_folder.require_no_trainer(folder.path)


def losses(folder: RunFolder) -> dict[int, list[str]]:
    """Every loss of the log by step, in the order in which they were written."""
    by_step: dict[int, list[str]] = {}
    for line in run_progress.log_file(folder.path).read_text().splitlines():
        words = line.split()
        if words[1] == "step":
            step, loss = int(words[2].split("/")[0]), words[words.index("loss") + 1]
            by_step.setdefault(step, []).append(loss)
    return by_step


LONG: dict[str, Any] = {"epochs": 5, "save_steps": 3, "lora_dropout": 0.2, "learning_rate": 5e-2}


def test_after_a_kill_it_goes_on_as_if_nothing_had_been(
    tmp_path: Path, base: Path, children: Any
) -> None:
    """Same losses, same order, same dropout: the adapter is the same to the bit."""
    whole = Child(children, tiny.run_folder(tmp_path, base, tiny.rows(), "whole", **LONG))
    assert whole.ended() == 0
    cut = tiny.run_folder(tmp_path, base, tiny.rows(), "cut", **LONG)
    child = Child(children, cut)
    child.until("checkpoint at step 6")
    child.process.kill()
    assert child.ended() == -signal.SIGKILL
    progress = settle_run(cut, -signal.SIGKILL)
    assert progress.state == "failed" and "--resume cut" in progress.message
    assert "checkpoint-" in progress.message
    assert "most likely memory ran out" in progress.message
    assert "--resume cut --set gradient_checkpointing=true" in progress.message
    assert Child(children, cut).ended() == 0
    expected, actual = losses(whole.folder), losses(cut)
    assert {step: each[-1] for step, each in actual.items()} == {
        step: each[0] for step, each in expected.items()
    }
    assert len(actual[1]) == 1, "it began anew"
    assert "going on from checkpoint-" in run_progress.log_file(cut.path).read_text()
    outputs = (cut.output, whole.folder.output)
    mine, theirs = (load_file(folder / "adapter_model.safetensors") for folder in outputs)
    assert all((mine[name] == theirs[name]).all() for name in theirs)


@pytest.mark.slow
def test_a_checkpoint_of_another_kind_is_not_gone_on_with(
    tmp_path: Path, base: Path, children: Any
) -> None:
    """Its optimizer would be looked for in files that are not there, or passed over in silence."""
    folder = tiny.run_folder(tmp_path, base, tiny.rows(), save_steps=1, steps=2)
    assert Child(children, folder).ended() == 0
    newest = run_checkpoints.newest_checkpoint(folder.checkpoints)
    assert newest is not None and run_checkpoints.checkpoint_kind(newest) == "plain"
    marker = newest / run_checkpoints.MARKER_FILE
    marker.write_text(marker.read_text().replace('"plain"', '"fsdp"'))
    assert Child(children, folder).ended() == 1
    progress = run_progress.read_progress(folder.path)
    assert progress is not None and progress.state == "failed"
    assert "checkpoint-2 was written by FSDP, and training without shards" in progress.message
    assert "--resume run --set accelerate=fsdp; or start a new run" in progress.message


def test_asked_to_end_it_saves_and_ends(tmp_path: Path, base: Path, children: Any) -> None:
    folder = tiny.run_folder(tmp_path, base, tiny.rows(), **LONG | {"epochs": 200})
    child = Child(children, folder)
    child.until("step 3/")
    child.process.terminate()
    assert child.ended() == trainer_process.TERMINATED_EXIT_CODE
    progress = run_progress.read_progress(folder.path)
    assert progress is not None and progress.state == "cancelled"
    newest = run_checkpoints.newest_checkpoint(folder.checkpoints)
    assert newest is not None and newest.name == f"checkpoint-{progress.step}"
    assert str(newest) in progress.message and "houston train sft --resume run" in progress.message
    assert not folder.output.exists()


@pytest.mark.slow
def test_a_loss_that_is_no_number_ends_it_with_the_last_good_checkpoint(
    tmp_path: Path, base: Path, children: Any
) -> None:
    examples = tiny.rows()
    examples[0]["weights"] = [3e38 if weight else 0.0 for weight in examples[0]["weights"]]
    order = {"epochs": 3, "batch": 1, "save_steps": 1}
    folder = tiny.run_folder(tmp_path, base, examples, **order)
    assert Child(children, folder).ended() == 1
    progress = run_progress.read_progress(folder.path)
    assert progress is not None and progress.state == "failed"
    assert "is not a number" in progress.message
    assert "a new run with lower rates, --set learning_rate=2e-05" in progress.message
    newest = run_checkpoints.newest_checkpoint(folder.checkpoints)
    checkpoint = str(newest) if newest else "no checkpoint yet"
    assert checkpoint in progress.message
    for weights in run_checkpoints.whole_checkpoints(folder.checkpoints):
        values = load_file(weights / "adapter_model.safetensors").values()
        assert all(abs(value).max() < 1e3 for value in values)


def test_without_memory_it_ends_with_a_sentence(tmp_path: Path, base: Path, children: Any) -> None:
    """Whatever the machine has free: with less than it reckons it would refuse to begin."""
    wide = tiny.save_model(
        tmp_path / "wide", max_position_embeddings=4_096, intermediate_size=65_536
    )
    folder = tiny.run_folder(
        tmp_path, wide, [tiny.row(0, 4_000)], max_length=4_000, full=True, check_memory=False
    )
    assert Child(children, folder, memory=1500 * 2**20).ended() == 1  # two of a layer need 2 GB
    progress = run_progress.read_progress(folder.path)
    assert progress is not None and progress.state == "failed"
    assert progress.message.startswith("Memory ran out with passes of up to 4000 tokens;")
    assert "--resume run --set gradient_checkpointing=true;" in progress.message
    assert "pack_tokens" not in progress.message, "the row has 4,000, whatever a pass may have"


def test_a_process_that_lost_another_does_not_speak_over_it(tmp_path: Path, base: Path) -> None:
    """One runs out of memory and says what to change; the others only see it gone."""
    folder = tiny.run_folder(tmp_path, base, tiny.rows())
    run_progress.ProgressWriter(folder.path).set_state("failed", "Memory ran out.")
    trainer_process.report_failure(folder, RuntimeError("Connection closed by peer"))
    progress = run_progress.read_progress(folder.path)
    assert progress is not None and progress.message == "Memory ran out."
    assert "Connection closed by peer" in run_progress.log_file(folder.path).read_text()


LOST: dict[str, tuple[Exception, str]] = {
    "gloo": (
        RuntimeError("[/x/gloo/transport/tcp/pair.cc:537] Connection reset by peer"),
        "running",
    ),
    "torch's store": (torch.distributed.DistNetworkError("failed to recv, got 0 bytes"), "running"),
    "NCCL": (torch.distributed.DistBackendError("NCCL error: remote process exited"), "running"),
    "its own fault": (RuntimeError("index 7 is out of bounds"), "failed"),
}


@pytest.mark.parametrize("case", LOST)
def test_a_process_that_only_lost_another_leaves_the_run_to_go_on(
    tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """Who started it knows what became of the other, and goes on from the checkpoint."""
    problem, state = LOST[case]
    folder = tiny.run_folder(tmp_path, base, tiny.rows())
    run_progress.ProgressWriter(folder.path).set_state("running")
    monkeypatch.setattr(trainer_process, "_QUIET_ENVIRONMENT", {})
    monkeypatch.setenv("RANK", "1")
    told: list[str] = []

    def train(folder: RunFolder, writer: run_progress.ProgressWriter) -> int:
        raise problem

    mask = os.umask(0o077)
    code = trainer_process.run_trainer(folder, train, lambda each: each, told.append)
    os.umask(mask)
    progress = run_progress.read_progress(folder.path)
    assert code == ExitCode.FAILED
    assert progress is not None and progress.state == state
    assert bool(told) == (state == "failed")
    assert str(problem) in run_progress.log_file(folder.path).read_text()


def test_rows_are_cut_and_what_has_nothing_left_is_named(
    tmp_path: Path, base: Path, children: Any
) -> None:
    """Also the loss on what was held out, and how often rows of a kind are seen."""
    examples = tiny.rows()
    examples[3]["kind"] = "summary"
    folder = tiny.run_folder(
        tmp_path, base, examples, max_length=11, upsample={"react": 2, "summary": 3}
    )
    tiny.write(folder.data, tiny.rows((20, 30), seed=4), "held_out")
    assert Child(children, folder).ended() == 0
    log = run_progress.log_file(folder.path).read_text()
    assert "8 rows cut to 11 tokens" not in log  # those without a token to train are not counted
    trained = [number for number, length in enumerate(tiny.LENGTHS) if length // 4 < 11]
    dropped = [f"r{number}/0.0" for number, length in enumerate(tiny.LENGTHS) if length // 4 >= 11]
    assert f"left out, nothing to train within it: {', '.join(dropped)}" in log
    result = folder.result
    assert result is not None and (result.rows, result.dropped) == (len(trained), len(dropped))
    tokens = {number: min(11, tiny.LENGTHS[number]) for number in trained}
    assert result.tokens == 2 * sum(tokens.values()) + tokens.get(3, 0)
    assert result.held_out_before is not None and result.held_out_after is not None
    progress = json.loads(run_progress.progress_file(folder.path).read_text())
    assert progress["state"] == "finished" and progress["step"] == progress["steps"] == result.steps
    figures = ("loss", "lr", "tokens", "tokens_per_second", "grad_norm")
    assert all(progress[name] for name in figures)
    assert progress["memory_bytes"] > 2**20 and progress["eta_seconds"] == 0


FSDP = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
use_cpu: true
num_machines: 1
num_processes: 2
machine_rank: 0
mixed_precision: "no"
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_reshard_after_forward: true
  fsdp_state_dict_type: FULL_STATE_DICT
"""


def launched(folder: RunFolder, *, shards: bool) -> None:
    words = sft_launch.launch_command(folder.path, 0)
    if shards:
        words[words.index(sft_launch.TRAINER_PACKAGE)] = "tests.training.sft.sharded"
    process = subprocess.run(words, capture_output=True, text=True, timeout=250, check=False)
    assert process.returncode == 0, process.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "fsdp"])
def test_two_processes_train_what_one_does(
    tmp_path: Path, base: Path, children: Any, kind: str
) -> None:
    """`accelerate launch` on two processors (gloo): same losses, same weights, in one piece; and
    again from a checkpoint of the same kind."""
    shards = kind == "fsdp"
    file = Path(sft_launch.accelerate_file("cpu"))
    if shards:
        file = tmp_path / "fsdp.yaml"
        file.write_text(FSDP)
    settings: dict[str, Any] = {"full": shards, "steps": 2, "save_steps": 1}
    first = tiny.run_folder(tmp_path, base, tiny.rows(), "first", **settings)
    second = tiny.run_folder(
        tmp_path, base, tiny.rows(), "second", accelerate=str(file), **settings
    )
    alone = Child(children, first)
    launched(second, shards=shards)
    assert alone.ended() == 0
    same_as(first, second, shards=shards)
    last = run_checkpoints.newest_checkpoint(second.checkpoints)
    assert last is not None and run_checkpoints.checkpoint_kind(last) == kind
    for folder in (last, second.output):
        shutil.rmtree(folder)
    launched(second, shards=shards)
    assert "going on from checkpoint-1" in run_progress.log_file(second.path).read_text()
    same_as(first, second, shards=shards)


def same_as(first: RunFolder, second: RunFolder, *, shards: bool) -> None:
    expected, actual = first.result, second.result
    assert expected is not None and actual is not None
    assert (expected.processes, actual.processes) == (1, 2)
    assert actual.loss_first == pytest.approx(expected.loss_first, rel=1e-5)
    assert actual.loss_mean_last_10 == pytest.approx(expected.loss_mean_last_10, rel=1e-4)
    name = "model.safetensors" if shards else "adapter_model.safetensors"
    mine, theirs = (load_file(each.output / name) for each in (second, first))
    if shards:  # FSDP's weights in one piece name a tied head, too
        assert (mine.pop("lm_head.weight") == mine["model.embed_tokens.weight"]).all()
    assert mine.keys() == theirs.keys()
    assert all(abs(mine[key] - theirs[key]).max() <= 1e-5 for key in theirs)
