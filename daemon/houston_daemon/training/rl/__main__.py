"""The trainer process: `python -m houston_daemon.training.rl RUN_FOLDER`.

SIGTERM ends it after the current update, or at once while it waits for rollouts. It reports in the
run's folder (`progress.json`, `log.txt`, `updates.jsonl`).
"""

import sys
from functools import partial
from pathlib import Path

from houston_daemon.training.rl.rl_run_folder import RlRunFolder
from houston_daemon.training.runs import trainer_process
from houston_daemon.training.runs.run_progress import ProgressWriter
from houston_shared.errors import ExitCode


def _train(folder: RlRunFolder, writer: ProgressWriter) -> int:
    from houston_daemon.training.rl.rl_run import RlRun

    policy = RlRun(folder, writer).train()
    if not policy:
        return trainer_process.report_stop(folder, writer)
    writer.set_state("finished", f"{policy} is stored in {folder.output}.")
    writer.log(f"finished {policy}")
    return int(ExitCode.DONE)


MEMORY_ADVICE = "--set pass_tokens=2048 or --set gradient_checkpointing=true"

if __name__ == "__main__":
    run_folder = RlRunFolder(Path(sys.argv[1]).absolute())
    explain = partial(trainer_process.explain_memory, advice=MEMORY_ADVICE)
    sys.exit(trainer_process.run_trainer(run_folder, _train, explain))
