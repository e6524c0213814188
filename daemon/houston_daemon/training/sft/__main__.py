"""The trainer process: `python -m houston_daemon.training.sft RUN_FOLDER`.

One process, or one of several that `accelerate launch` starts (`sft_launch.launch_command`), on a
Ray cluster too (`ray_launch`).
SIGTERM saves and ends. What it has to say is in the folder (`progress.json`, `log.txt`).
"""

import os
import sys
from pathlib import Path

from houston_daemon.service.parent_death import end_with_parent
from houston_daemon.training.runs import trainer_process
from houston_daemon.training.runs.run_progress import ProgressWriter
from houston_daemon.training.sft import run_policies
from houston_daemon.training.sft.run_policies import tell_run_ended
from houston_daemon.training.sft.sft_run_folder import RunFolder
from houston_shared.errors import ExitCode


def _train_folder(folder: RunFolder, writer: ProgressWriter) -> int:
    first = trainer_process.is_first_process()
    if first:
        run_policies.check_base_unchanged(folder)  # the others end with this one
    from houston_daemon.training.sft.training_run import train_run

    if not train_run(folder, writer):
        code = trainer_process.report_stop(folder, writer)
        if first:
            tell_run_ended(folder, "cancelled", "it was asked to end")
        return code
    if first and run_policies.CONCLUDED_VARIABLE not in os.environ:
        run_policies.conclude_run(folder, writer)
    return int(ExitCode.DONE)


def explained(folder: RunFolder, problem: Exception) -> Exception:
    """An error with advice where memory ran out outside the passes, which have their own error."""
    from houston_daemon.training.sft import training_memory

    if training_memory.is_out_of_memory(problem):
        return training_memory.out_of_memory_elsewhere(folder)
    return problem


def main() -> int:
    """Train; returns the exit code."""
    folder = RunFolder(Path(sys.argv[1]).absolute())
    if "LOCAL_RANK" in os.environ:
        # One of several processes ends with the one that started them.
        end_with_parent(os.getppid())
    else:
        trainer_process.use_one_gpu()
    return trainer_process.run_trainer(
        folder,
        _train_folder,
        lambda problem: explained(folder, problem),
        lambda cause: tell_run_ended(folder, "failed", cause),
    )


if __name__ == "__main__":
    sys.exit(main())
