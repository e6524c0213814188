"""The trainer: `python -m houston_daemon.training.sft RUN_FOLDER`.

One process, or one of several that `accelerate launch` starts (`launch.command`). SIGTERM saves and
ends. What it has to say is in the folder (`progress.json`, `log.txt`); an error is one sentence,
there and on stderr, and exit code 1.
"""

import os
import signal
import sys
import traceback
import warnings
from pathlib import Path

from houston_daemon.service.tether import tie
from houston_daemon.service.trainer_command import MARK
from houston_daemon.training.sft import beginning, progress, turn
from houston_daemon.training.sft.finishing import ended, finish
from houston_daemon.training.sft.progress import Writer
from houston_daemon.training.sft.run_folder import RunFolder
from houston_shared import out
from houston_shared.errors import ExitCode, HoustonError

ASKED_TO_END = 128 + signal.SIGTERM
"""Exit code of a run that SIGTERM ended before its last step: started again, it goes on."""
_QUIET = {
    "HF_HUB_OFFLINE": "1",  # a base is a folder; nothing is fetched
    "HF_HUB_DISABLE_TELEMETRY": "1",  # TRL reports what is trained
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
_RENAMED = ("`gradient_checkpointing` is dep", "`is_gradient_checkpointing` is dep")
"""What TRL and PEFT still call by its old name, and transformers tells everybody who trains."""


def main() -> int:
    """Train; returns the exit code."""
    folder = RunFolder(Path(sys.argv[1]).absolute())
    os.environ.update(_QUIET)
    os.umask(0o077)  # libraries write pages and descriptions beside the weights, for all to read
    for renamed in _RENAMED:
        warnings.filterwarnings("ignore", renamed, FutureWarning, "transformers")
    if "LOCAL_RANK" in os.environ:
        tie(os.getppid())  # one of several processes ends with the one that started them
    else:
        _see_one_gpu()
    first = os.environ.get("RANK", "0") == "0"
    if first:
        try:
            turn.take(folder.path)  # until this process ends
        except HoustonError as problem:  # the folder is the other's to write into
            out.note(str(problem))
            return int(problem.code)
    writer = Writer(folder.path, silent=not first)
    try:
        writer.started(alone=MARK not in os.environ)
        return _train(folder, writer)
    except Exception as problem:  # noqa: BLE001 whatever it is, the folder says how it ended
        _failed(folder, problem)
        return int(ExitCode.FAILED)


def _train(folder: RunFolder, writer: Writer) -> int:
    if os.environ.get("RANK", "0") == "0":
        beginning.check(folder)  # the others end with this one
    from houston_daemon.training.sft.running import train

    if not train(folder, writer):
        writer.set("cancelled", f"It was asked to end. {folder.good} Next: {folder.again}")
        writer.say(writer.now.message)
        if os.environ.get("RANK", "0") == "0":
            ended(folder, "cancelled", "it was asked to end")
        return ASKED_TO_END
    if os.environ.get("RANK", "0") == "0":
        policy = finish(folder)
        writer.set("finished", f"{policy or 'It'} lies in {folder.output}.")
        writer.say(f"finished {policy}".strip())
        ended(folder, "finished")
    return int(ExitCode.DONE)


def _failed(folder: RunFolder, problem: Exception) -> None:
    """Say it, whichever process this is: the first may know nothing of it."""
    from houston_daemon.training.sft import memory

    if memory.ran_out(problem):  # passes have their own word for it
        problem = memory.beside_passes(folder)
    writer, now = Writer(folder.path), progress.read(folder.path)
    if not isinstance(problem, HoustonError):
        writer.say("".join(traceback.format_exception(problem)))
        if now is not None and now.state == "failed":
            return  # another process has said why; this one lost touch with it
        what = str(problem).strip().partition("\n")[0]
        problem = HoustonError(
            f"The trainer met {type(problem).__name__}: {what}.",
            f"Training ended there. {folder.good}",
            f"Next: look into {folder.path / 'log.txt'}",
        )
    writer.set("failed", str(problem))
    writer.say(str(problem))
    out.note(str(problem))
    ended(folder, "failed", problem.cause)


def _see_one_gpu() -> None:
    """Without a launcher transformers would put one model on all GPUs, badly; TRL refuses that."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = "0" if seen is None else seen.partition(",")[0]


if __name__ == "__main__":
    sys.exit(main())
