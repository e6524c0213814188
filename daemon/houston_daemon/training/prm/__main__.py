"""The trainer process: `python -m houston_daemon.training.prm RUN_FOLDER`.

SIGTERM ends it after the current epoch. It reports in the run's folder (`progress.json`, `log.txt`,
`result.json`).
"""

import sys
from functools import partial
from pathlib import Path

from houston_daemon.training.prm.prm_run_folder import PrmRunFolder
from houston_daemon.training.runs import trainer_process
from houston_daemon.training.runs.run_progress import ProgressWriter
from houston_shared.errors import ExitCode


def _train(folder: PrmRunFolder, writer: ProgressWriter) -> int:
    from houston_daemon.training.prm.prm_run import register_prm, train_prm

    if not train_prm(folder, writer):
        return trainer_process.report_stop(folder, writer)
    policy = register_prm(folder)
    measured = folder.result.held_out or folder.result.train
    where = "held-out" if folder.result.held_out else "trained"
    order = measured.rank_correlation
    writer.set_state(
        "finished",
        f"{policy}: on {measured.labels} {where} labels off by {measured.mae:.3f} a decision (their"
        f" mean alone: {measured.mean_predictor_mae:.3f}), rank correlation"
        f" {'none' if order is None else format(order, '.2f')}.",
    )
    writer.log(f"finished {policy}")
    return int(ExitCode.DONE)


MEMORY_ADVICE = "--set batch=4 or --set max_tokens=512"

if __name__ == "__main__":
    run_folder = PrmRunFolder(Path(sys.argv[1]).absolute())
    explain = partial(trainer_process.explain_memory, advice=MEMORY_ADVICE)
    sys.exit(trainer_process.run_trainer(run_folder, _train, explain))
