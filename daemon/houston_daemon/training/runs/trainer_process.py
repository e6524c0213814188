"""What every trainer process does around its training: environment, lock, progress, exit.

An error is reported as one sentence in the run's folder and on stderr, with exit code 1. The caller
does the training.
"""

import os
import signal
import traceback
import warnings
from collections.abc import Callable
from typing import TypeVar

from houston_daemon.service.trainer_launch import TRAINER_VARIABLE
from houston_daemon.training.runs import run_folder, run_progress
from houston_daemon.training.runs.run_folder import TrainingRunFolder
from houston_daemon.training.runs.run_progress import ProgressWriter
from houston_shared import command_output
from houston_shared.errors import ExitCode, HoustonError

TERMINATED_EXIT_CODE = 128 + signal.SIGTERM
"""Exit code of a run that SIGTERM ended before its last step: started again, it goes on."""
_QUIET_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",  # a base is a folder; nothing is fetched
    "HF_HUB_DISABLE_TELEMETRY": "1",  # TRL reports what is trained
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
_IGNORED_WARNINGS = ("`gradient_checkpointing` is dep", "`is_gradient_checkpointing` is dep")
"""What TRL and PEFT still call by its old name, and transformers tells everybody who trains."""
_LOST_TOUCH_ERRORS = {"DistBackendError", "DistNetworkError", "DistStoreError"}
"""What torch raises where another process cannot be reached, by name: torch is not imported."""
_GLOO_TRANSPORT = "gloo/transport/"
"""In the words of gloo where a connection to another process has ended."""
Folder = TypeVar("Folder", bound=TrainingRunFolder)


def explain_memory(problem: Exception, advice: str) -> Exception:
    """Where memory ran out, an error that says what helps; else the problem. advice: settings."""
    from houston_daemon.training.sft.training_memory import is_out_of_memory

    if not is_out_of_memory(problem):
        return problem
    return HoustonError(
        "Memory ran out in the trainer.",
        "Training ended there; its checkpoints stay.",
        f"Next: a new run with {advice}",
    )


def run_trainer(
    folder: Folder,
    train: Callable[[Folder, ProgressWriter], int],
    explain: Callable[[Exception], Exception],
    tell_failure: Callable[[str], None] = lambda cause: None,
) -> int:
    """Train in this process, which holds the folder until it ends; returns the exit code.

    train: does the work and reports how it ended; its errors are reported here. explain: replaces
    an error by one that says more, or returns it. tell_failure: called with the cause, for whoever
    waits elsewhere for the end.
    """
    os.environ.update(_QUIET_ENVIRONMENT)
    os.umask(0o077)  # libraries write pages and descriptions beside the weights, for all to read
    for renamed in _IGNORED_WARNINGS:
        warnings.filterwarnings("ignore", renamed, FutureWarning, "transformers")
    first = is_first_process()
    if first:
        try:
            run_folder.take_folder(folder.path)  # until this process ends
        except HoustonError as problem:  # the folder is the other's to write into
            command_output.print_note(str(problem))
            return int(problem.code)
    writer = ProgressWriter(folder.path, silent=not first)
    try:
        writer.started(alone=TRAINER_VARIABLE not in os.environ)
        return train(folder, writer)
    except Exception as problem:  # noqa: BLE001 whatever it is, the folder says how it ended
        if not _lost_touch(folder, problem):
            tell_failure(report_failure(folder, explain(problem)))
        return int(ExitCode.FAILED)


def _lost_touch(folder: TrainingRunFolder, problem: Exception) -> bool:
    """Whether it only lost touch with another process of the run, which has not said why it ended:
    then that is no failure of the run, and who started it goes on with it."""
    names = {each.__name__ for each in type(problem).__mro__}
    if not (names & _LOST_TOUCH_ERRORS or _GLOO_TRANSPORT in str(problem)):
        return False
    progress = run_progress.read_progress(folder.path)
    if progress is not None and progress.state == "failed":
        return False
    first_line = str(problem).strip().partition("\n")[0]
    line = f"lost the connection to another process: {first_line}"
    ProgressWriter(folder.path).log(line)
    command_output.print_note(line)
    return True


def is_first_process() -> bool:
    """Whether this is the first of several processes, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def use_one_gpu() -> None:
    """Without a launcher transformers would put one model on all GPUs, badly; TRL refuses that."""
    devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = "0" if devices is None else devices.partition(",")[0]


def report_stop(folder: TrainingRunFolder, writer: ProgressWriter) -> int:
    """Say that a run was asked to end before its last step; returns the exit code."""
    writer.set_state(
        "cancelled", f"It was asked to end. {folder.what_is_kept} Next: {folder.resume_command}"
    )
    writer.log(writer.now.message)
    return TERMINATED_EXIT_CODE


def report_failure(folder: TrainingRunFolder, problem: Exception) -> str:
    """Say it, whichever process this is: the first may know nothing of it. Returns the cause."""
    writer, now = ProgressWriter(folder.path), run_progress.read_progress(folder.path)
    if not isinstance(problem, HoustonError):
        writer.log("".join(traceback.format_exception(problem)))
        if now is not None and now.state == "failed":
            return now.message  # another process has said why; this one lost touch with it
        what = str(problem).strip().partition("\n")[0]
        problem = HoustonError(
            f"The trainer failed with {type(problem).__name__}: {what}.",
            f"Training ended there. {folder.what_is_kept}",
            f"Next: read {folder.path / 'log.txt'}",
        )
    writer.set_state("failed", str(problem))
    writer.log(str(problem))
    command_output.print_note(str(problem))
    return problem.cause
