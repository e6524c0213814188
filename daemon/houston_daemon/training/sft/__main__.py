"""The trainer process: `python -m houston_daemon.training.sft RUN_FOLDER`.

One process, or one of several that `accelerate launch` starts (`sft_launch.launch_command`).
SIGTERM saves and ends. What it has to say is in the folder (`progress.json`, `log.txt`); an error
is one sentence, there and on stderr, and exit code 1.
"""

import os
import signal
import sys
import traceback
import warnings
from pathlib import Path

from houston_daemon.service.parent_death import end_with_parent
from houston_daemon.service.trainer_launch import TRAINER_VARIABLE
from houston_daemon.training.sft import run_policies, sft_progress, sft_run_folder
from houston_daemon.training.sft.run_policies import register_if_daemon, tell_run_ended
from houston_daemon.training.sft.sft_progress import ProgressWriter
from houston_daemon.training.sft.sft_run_folder import RunFolder
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


def main() -> int:
    """Train; returns the exit code."""
    folder = RunFolder(Path(sys.argv[1]).absolute())
    os.environ.update(_QUIET_ENVIRONMENT)
    os.umask(0o077)  # libraries write pages and descriptions beside the weights, for all to read
    for renamed in _IGNORED_WARNINGS:
        warnings.filterwarnings("ignore", renamed, FutureWarning, "transformers")
    if "LOCAL_RANK" in os.environ:
        end_with_parent(
            os.getppid()
        )  # one of several processes ends with the one that started them
    else:
        _use_one_gpu()
    first = os.environ.get("RANK", "0") == "0"
    if first:
        try:
            sft_run_folder.take_folder(folder.path)  # until this process ends
        except HoustonError as problem:  # the folder is the other's to write into
            command_output.print_note(str(problem))
            return int(problem.code)
    writer = ProgressWriter(folder.path, silent=not first)
    try:
        writer.started(alone=TRAINER_VARIABLE not in os.environ)
        return _train_folder(folder, writer)
    except Exception as problem:  # noqa: BLE001 whatever it is, the folder says how it ended
        _report_failure(folder, problem)
        return int(ExitCode.FAILED)


def _train_folder(folder: RunFolder, writer: ProgressWriter) -> int:
    if os.environ.get("RANK", "0") == "0":
        run_policies.check_base_unchanged(folder)  # the others end with this one
    from houston_daemon.training.sft.training_run import train_run

    if not train_run(folder, writer):
        writer.set_state(
            "cancelled", f"It was asked to end. {folder.what_is_kept} Next: {folder.resume_command}"
        )
        writer.log(writer.now.message)
        if os.environ.get("RANK", "0") == "0":
            tell_run_ended(folder, "cancelled", "it was asked to end")
        return TERMINATED_EXIT_CODE
    if os.environ.get("RANK", "0") == "0":
        policy = register_if_daemon(folder)
        writer.set_state("finished", f"{policy or 'It'} lies in {folder.output}.")
        writer.log(f"finished {policy}".strip())
        tell_run_ended(folder, "finished")
    return int(ExitCode.DONE)


def _report_failure(folder: RunFolder, problem: Exception) -> None:
    """Say it, whichever process this is: the first may know nothing of it."""
    from houston_daemon.training.sft import training_memory

    if training_memory.is_out_of_memory(problem):  # passes have their own word for it
        problem = training_memory.out_of_memory_elsewhere(folder)
    writer, now = ProgressWriter(folder.path), sft_progress.read_progress(folder.path)
    if not isinstance(problem, HoustonError):
        writer.log("".join(traceback.format_exception(problem)))
        if now is not None and now.state == "failed":
            return  # another process has said why; this one lost touch with it
        what = str(problem).strip().partition("\n")[0]
        problem = HoustonError(
            f"The trainer met {type(problem).__name__}: {what}.",
            f"Training ended there. {folder.what_is_kept}",
            f"Next: look into {folder.path / 'log.txt'}",
        )
    writer.set_state("failed", str(problem))
    writer.log(str(problem))
    command_output.print_note(str(problem))
    tell_run_ended(folder, "failed", problem.cause)


def _use_one_gpu() -> None:
    """Without a launcher transformers would put one model on all GPUs, badly; TRL refuses that."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = "0" if seen is None else seen.partition(",")[0]


if __name__ == "__main__":
    sys.exit(main())
