"""The trainer: `python -m houston_daemon.training.sft RUN_FOLDER`.

With a configuration of accelerate in the recipe it becomes `accelerate launch`, which starts this
program again, once per process. SIGTERM saves and ends. What it has to say is in the folder
(`progress.json`, `log.txt`); an error is one sentence, there and on stderr, and exit code 1.
"""

import os
import sys
import traceback
from pathlib import Path

from houston_daemon.service.tether import tie
from houston_daemon.training.sft.progress import Writer
from houston_daemon.training.sft.run_folder import RunFolder
from houston_shared.errors import ExitCode, HoustonError

PARENT = "HOUSTON_TRAINER_PARENT"
"""Variable with the pid of the process with which the trainer ends."""
_LAUNCHED = "HOUSTON_TRAINER_LAUNCHED"
_QUIET = {
    "HF_HUB_OFFLINE": "1",  # a base is a folder; nothing is fetched
    "HF_HUB_DISABLE_TELEMETRY": "1",  # TRL reports what is trained
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


def main() -> int:
    """Train; returns the exit code."""
    folder = RunFolder(Path(sys.argv[1]).absolute())
    os.environ.update(_QUIET)
    _tie()
    configuration = folder.asked.recipe.accelerate
    if configuration and _LAUNCHED not in os.environ:
        _launch(folder, configuration)
    if "LOCAL_RANK" not in os.environ:
        _see_one_gpu()
    writer = Writer(folder.path, silent=os.environ.get("RANK", "0") != "0")
    try:
        return _train(folder, writer)
    except Exception as problem:  # noqa: BLE001 whatever it is, the folder says how it ended
        _failed(folder, problem)
        return int(ExitCode.FAILED)


def _train(folder: RunFolder, writer: Writer) -> int:
    from houston_daemon.training.sft.running import train

    if train(folder, writer):
        writer.set("finished", f"{folder.output}")
        writer.say("finished")
    else:
        writer.set("cancelled", f"It was asked to end. {folder.good} {folder.again}")
        writer.say(writer.now.message)
    return int(ExitCode.DONE)


def _failed(folder: RunFolder, problem: Exception) -> None:
    """Say it, whichever process this is: the first may know nothing of it."""
    from houston_daemon.training.sft.watching import out_of_memory

    if out_of_memory(problem):
        recipe = folder.asked.recipe
        problem = HoustonError(
            f"Memory ran out with passes of {recipe.pack_tokens} tokens.",
            f"Training ended there. {folder.good}",
            f"{folder.again} --set pack_tokens={max(1, recipe.pack_tokens // 2)}"
            + ("" if recipe.gradient_checkpointing else " --set gradient_checkpointing=true"),
        )
    writer = Writer(folder.path)
    if not isinstance(problem, HoustonError):
        writer.say(traceback.format_exc())
        what = str(problem).strip().partition("\n")[0]
        problem = HoustonError(
            f"The trainer met {type(problem).__name__}: {what}.",
            f"Training ended there. {folder.good}",
            f"Look into {folder.path / 'log.txt'}",
        )
    writer.set("failed", str(problem))
    writer.say(str(problem))
    sys.stderr.write(f"{problem}\n")


def _tie() -> None:
    """End with the parent that asked for it; kept over exec. Processes of a launch end with it."""
    parent = os.environ.pop(PARENT, "")
    if parent and not tie(int(parent)):
        sys.exit(int(ExitCode.FAILED))
    if "LOCAL_RANK" in os.environ:
        tie(os.getppid())


def _launch(folder: RunFolder, configuration: str) -> None:
    """Become `accelerate launch`."""
    os.environ[_LAUNCHED] = "1"
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", configuration]
    command += ["-m", "houston_daemon.training.sft", str(folder.path)]
    os.execv(sys.executable, command)


def _see_one_gpu() -> None:
    """Without a launcher transformers would put one model on all GPUs, badly; TRL refuses that."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = "0" if seen is None else seen.partition(",")[0]


if __name__ == "__main__":
    sys.exit(main())
