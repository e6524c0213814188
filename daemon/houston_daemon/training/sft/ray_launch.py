"""Starts a trainer's processes on the nodes of a Ray cluster, with Ray Train.

`python -m houston_daemon.training.sft.ray_launch ADDRESS PROCESSES GPUS FOLDER OPTIONS… -- WORDS…`
replaces `accelerate launch` where several processes train and `[ray]` names a cluster. Ray Train
finds a place for each process (one CPU, and one GPU where the run has some) and starts all or none.
Training, folder and checkpoints are those of a run without Ray. If a worker or a node is lost, all
processes end. They start again from the last checkpoint if there is a new one since the last loss;
otherwise this exits with 1 and a sentence, and its caller decides.

The process with rank 0 may be on a node that reaches no daemon, so what comes after training
(`run_policies.conclude_run`) is done here. It imports no torch.
"""

import os
import shutil
import signal
import socket
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from houston_daemon.service.trainer_launch import TRAINER_VARIABLE
from houston_daemon.training.runs import (
    run_checkpoints,
    run_folder,
    run_progress,
    trainer_process,
)
from houston_daemon.training.runs.run_progress import ProgressWriter
from houston_daemon.training.sft import run_policies
from houston_daemon.training.sft.ray_process import (
    FolderMissing,
    LaunchOrder,
    ProcessEnded,
    hold_process,
)
from houston_daemon.training.sft.sft_run_folder import RunFolder
from houston_shared import command_output
from houston_shared.config_sections import LOCAL_CLUSTER
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.times_and_counts import pluralize

STORE_BYTES = 80_000_000
"""Object store of a cluster of our own: nothing is put there, and Ray wants no less."""
_HEAD_SECONDS = 15.0
"""What a head may take to answer."""
PLACES_SECONDS = 600
"""How long Ray Train waits for places before it asks for them anew, which it does without end."""
_STORAGE_NAME = "ray"
"""Folder of the run in which Ray Train keeps what it wants to."""
_SENT = (
    "HOUSTON_HOME",
    "HOUSTON_CONFIG",
    TRAINER_VARIABLE,
    "OMP_",
    "MKL_",
    "NCCL_",
    "GLOO_",
    "TORCH_",
)
"""Begins of the names of variables that nodes are sent. Keys are not among them: whoever may use
the cluster could read them there."""


class _NoCluster(Exception):
    """A cluster does not answer, and may be back later: whoever started this tries again."""


class _Launch:
    """One run on a cluster, from its first process to its end."""

    def __init__(
        self, folder: RunFolder, address: str, processes: int, gpus: int, command: list[str]
    ) -> None:
        self._folder = folder
        self._address = address
        self._processes = processes
        self._gpus = gpus
        self._stop_file = folder.path / "stop"
        split = command.index("--")
        self._order = LaunchOrder(
            folder=str(folder.path),
            stop_file=str(self._stop_file),
            options=command[:split],
            words=command[split + 1 :],
            environment={
                **{name: each for name, each in os.environ.items() if name.startswith(_SENT)},
                run_policies.CONCLUDED_VARIABLE: "1",
            },
            cwd=str(Path.cwd()),
        )
        self._writer = ProgressWriter(folder.path)
        each = "1 CPU and 1 GPU" if gpus else "1 CPU"
        self._waiting_message = (
            f"waits for {pluralize(processes, 'place')} in the Ray cluster {address},"
            f" {each} for each"
        )

    def run(self) -> int:
        """Train; returns the exit code. Raises HoustonError, _NoCluster."""
        self._stop_file.unlink(missing_ok=True)
        signal.signal(signal.SIGTERM, self._on_sigterm)  # before anyone reads that this waits
        self._writer.started(alone=TRAINER_VARIABLE not in os.environ)
        try:
            self._writer.set_state("running", self._waiting_message)
            if self._stop_file.exists():  # asked to end before that was written
                return trainer_process.report_stop(self._folder, self._writer)
            _connect(self._address, self._processes, self._gpus)
            signal.signal(signal.SIGTERM, self._on_sigterm)  # in the place of Ray's, which ends us
            while (code := self._train()) is None:
                self._writer.set_state("running", self._waiting_message)
            return code
        except (KeyboardInterrupt, SystemExit):  # ours, and that of Ray while it connects
            return trainer_process.report_stop(self._folder, self._writer)
        finally:
            self._stop_file.unlink(missing_ok=True)

    def _train(self) -> int | None:
        """Start all processes and wait for their end; the exit code, None: they are to go on."""
        from ray.exceptions import RayError
        from ray.train import RunConfig, ScalingConfig, TrainingFailedError
        from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

        began = run_checkpoints.newest_checkpoint(self._folder.checkpoints)
        trainer = DataParallelTrainer(
            hold_process,
            train_loop_config={"order": self._order},
            scaling_config=ScalingConfig(
                num_workers=self._processes,
                use_gpu=bool(self._gpus),
                resources_per_worker={"CPU": 1, **({"GPU": 1} if self._gpus else {})},
                placement_strategy="PACK",
            ),
            run_config=RunConfig(name=_STORAGE_NAME, storage_path=str(self._folder.path)),
        )
        try:
            trainer.fit()
        except TrainingFailedError as problem:
            return self._after_loss(problem, began)
        except RayError as problem:
            raise _NoCluster(
                f"The Ray cluster {self._address} no longer answers: {_words(problem)}"
            ) from problem
        shutil.rmtree(self._folder.path / _STORAGE_NAME, ignore_errors=True)
        if self._stop_file.exists():
            return self._after_stop()
        run_policies.conclude_run(self._folder, ProgressWriter(self._folder.path))
        return int(ExitCode.DONE)

    def _state(self) -> str:
        progress = run_progress.read_progress(self._folder.path)
        return progress.state if progress else ""

    def _after_stop(self) -> int:
        """All processes have left because they were asked to: the first has said so, or had not
        begun to train."""
        if self._state() != "cancelled":
            return trainer_process.report_stop(self._folder, ProgressWriter(self._folder.path))
        return trainer_process.TERMINATED_EXIT_CODE

    def _after_loss(self, problem: Exception, began: Path | None) -> int | None:
        """What a process or worker that ended too early means. began: the checkpoint before."""
        failures: dict[int, Exception] = getattr(problem, "worker_failures", {})
        if missing := [str(each) for each in failures.values() if isinstance(each, FolderMissing)]:
            raise HoustonError(
                f"The node {missing[0]} of the Ray cluster does not have {self._folder.path}.",
                "Nothing was trained further.",
                "Put the home on a file system that all nodes have at the same path, and"
                f" {self._folder.resume_command}",
            )
        state = self._state()
        if state == "failed":  # a process has said why
            return int(ExitCode.FAILED)
        if state == "cancelled":
            return trainer_process.TERMINATED_EXIT_CODE
        sentence = _loss_sentence(failures, self._processes) or _words(problem)
        newest = run_checkpoints.newest_checkpoint(self._folder.checkpoints)
        self._writer.log(sentence)
        command_output.print_note(sentence)  # the last line is what is told of a trainer's end
        return None if newest != began else int(ExitCode.FAILED)

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        self._stop_file.touch()
        progress = run_progress.read_progress(self._folder.path)
        if progress and progress.message == self._waiting_message:
            raise KeyboardInterrupt  # nothing else ends Ray's wait: it would wait on for places


def _connect(address: str, processes: int, gpus: int) -> None:
    """Join the cluster, or start one of this machine. Raises _NoCluster."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", str(PLACES_SECONDS))
    import ray

    quiet = {"log_to_driver": False, "logging_level": "WARNING", "namespace": "houston"}
    try:
        if address != LOCAL_CLUSTER:
            host, _, port = address.rpartition(":")
            if host and port.isdecimal():  # Ray itself asks for minutes where nobody answers
                socket.create_connection((host, int(port)), _HEAD_SECONDS).close()
            ray.init(address=address, **quiet)
            return
        own = {"include_dashboard": False, "object_store_memory": STORE_BYTES}
        cpus = max(processes, os.cpu_count() or 1)  # a place for each, on the smallest machine too
        ray.init(address=address, num_cpus=cpus, num_gpus=gpus, **own, **quiet)
    except (OSError, RuntimeError, ray.exceptions.RayError) as problem:
        raise _NoCluster(
            f"The Ray cluster {address} cannot be reached: {_words(problem)}"
        ) from problem


def _loss_sentence(failures: dict[int, Exception], processes: int) -> str:
    """What was lost first, as a person reads it. failures: by rank."""
    lost = {
        rank: getattr(each, "health_check_failure", each)
        for rank, each in failures.items()
        if not isinstance(each, ProcessEnded)
    }
    for rank, problem in sorted(lost.items()):
        return f"Process {rank + 1} of {processes} was lost with its Ray worker: {_words(problem)}"
    for _, problem in sorted(failures.items()):
        rank, host, code = problem.args
        return f"Process {rank + 1} of {processes}, on {host}, ended with exit code {code}."
    return ""


def _words(problem: Any) -> str:
    return " ".join(str(problem).split())[:300]


def main(arguments: list[str]) -> int:
    """Train; returns the exit code."""
    address, processes, gpus, path, *command = arguments
    folder = RunFolder(Path(path))
    try:
        run_folder.require_no_trainer(folder.path)
    except HoustonError as problem:  # the folder is the other's to write into
        command_output.print_note(str(problem))
        return int(problem.code)
    os.umask(0o077)
    try:
        return _Launch(folder, address, int(processes), int(gpus), command).run()
    except _NoCluster as problem:
        command_output.print_note(str(problem))
        return int(ExitCode.FAILED)
    except Exception as problem:  # noqa: BLE001 whatever it is, the folder says how it ended
        cause = trainer_process.report_failure(folder, problem)
        run_policies.tell_run_ended(folder, "failed", cause)
        return int(ExitCode.FAILED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
