"""The trainer process: `python -m houston_daemon.training.critic RUN_FOLDER`.

SIGTERM ends it after the current epoch. It reports in the run's folder (`progress.json`, `log.txt`,
`result.json`).
"""

import sys
from functools import partial
from pathlib import Path

from houston_daemon.training.critic.create_critic_run import CriticRunFolder
from houston_daemon.training.runs import trainer_process
from houston_daemon.training.runs.run_progress import ProgressWriter
from houston_shared.errors import ExitCode
from houston_shared.times_and_counts import pluralize


def _train(folder: CriticRunFolder, writer: ProgressWriter) -> int:
    from houston_daemon.training.critic.critic_run import register_critic, train_critic

    if not train_critic(folder, writer):
        return trainer_process.report_stop(folder, writer)
    policy = register_critic(folder)
    result = folder.result
    learned = f"{pluralize(result.messages, 'message')} and {pluralize(result.pairs, 'pair')}"
    writer.set_state("finished", f"{policy} has learned from {learned}.")
    writer.log(f"finished {policy}")
    return int(ExitCode.DONE)


MEMORY_ADVICE = "--set batch=2"

if __name__ == "__main__":
    run_folder = CriticRunFolder(Path(sys.argv[1]).absolute())
    explain = partial(trainer_process.explain_memory, advice=MEMORY_ADVICE)
    sys.exit(trainer_process.run_trainer(run_folder, _train, explain))
