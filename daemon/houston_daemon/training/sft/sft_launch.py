"""Starting the trainer's processes, choosing their GPUs, and following a run from a command.

One process, or `accelerate launch` with as many as its configuration or the GPUs say; where `[ray]`
names a cluster, several are placed on its nodes (`ray_launch`). A trainer that no daemon starts
takes GPUs that nobody has leased. Ctrl-C asks a run of ours to save and end, and only stops
following one of the daemon's. It imports no torch.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from houston_daemon.training.runs import run_progress
from houston_daemon.training.runs.run_folder import TrainingRunFolder
from houston_daemon.training.sft import sft_run_folder
from houston_daemon.training.sft.sft_recipe import NOTHING_TRAINED_MESSAGE, SftRecipe
from houston_daemon.training.sft.sft_run_folder import RunFolder, settle_run
from houston_shared import command_output, gpu_leases, policy_and_run_files
from houston_shared.config import LoadedConfiguration
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.errors import Busy, ConfigurationError, ExitCode, HoustonError, UsageError
from houston_shared.gpu_leases import GpuLease
from houston_shared.home_lock import find_running_daemon
from houston_shared.store import policy_queries
from houston_shared.store.store_reader import Reader
from houston_shared.store.training_event_bodies import ENDED_RUN_STATES
from houston_shared.times_and_counts import pluralize

ACCELERATE_FOLDER = Path(__file__).parent / "accelerate"
TRAINER_PACKAGE = "houston_daemon.training.sft"
RAY_LAUNCH_MODULE = "houston_daemon.training.sft.ray_launch"
_RAY_TRAIN_PACKAGES = ("ray", "pandas", "pyarrow", "pydantic")
"""Without these Ray Train cannot be imported, which takes seconds to try."""


def accelerate_names() -> list[str]:
    """The configurations of accelerate that come with Houston."""
    return sorted(file.stem for file in ACCELERATE_FOLDER.glob("*.yaml"))


def accelerate_file(name: str) -> str:
    """The file of a packaged configuration, or of a path. Raises ConfigurationError."""
    file = (
        ACCELERATE_FOLDER / f"{name}.yaml" if name in accelerate_names() else Path(name).absolute()
    )
    if not file.is_file():
        raise ConfigurationError(
            f"There is no configuration {name} of accelerate; packaged are"
            f" {', '.join(accelerate_names())}."
        )
    return str(file)


def process_count(recipe: SftRecipe, gpus: int) -> int:
    """How many processes train. Raises HoustonError for a configuration that cannot be read."""
    if gpus or not recipe.accelerate:
        return max(gpus, 1)
    file = accelerate_file(recipe.accelerate)
    return int(sft_run_folder.read_accelerate_file(file).get("num_processes", 1))


def ray_address(loaded: LoadedConfiguration, recipe: SftRecipe, gpus: int) -> str:
    """The Ray cluster whose nodes the run's processes are placed on; empty: on this machine,
    without Ray. Raises ConfigurationError where a package is missing."""
    address = loaded.config.ray.address
    if not address or process_count(recipe, gpus) < 2:
        return ""
    if missing := [name for name in _RAY_TRAIN_PACKAGES if find_spec(name) is None]:
        raise ConfigurationError(
            f"Several processes are placed by Ray Train, as `[ray] address` says, and"
            f" {', '.join(missing)} is not installed.",
            NOTHING_TRAINED_MESSAGE,
            "pip install 'houston-agents[ray-train]', or leave `address` out",
        )
    return address


def launch_command(folder: Path, gpus: int, ray: str = "") -> list[str]:
    """The command that trains a run. gpus: how many it has; 0 for the CPU. ray: `ray_address`.

    Several GPUs without a configuration each have the whole model and a share of the rows (DDP).
    """
    words = ["-m", TRAINER_PACKAGE, str(folder)]
    recipe = RunFolder(folder).spec.recipe
    file = recipe.accelerate
    if not file and gpus < 2:
        return [sys.executable, *words]
    options = ["--config_file", file] if file else ["--multi_gpu"]
    if ray:
        count = str(process_count(recipe, gpus))
        place = [ray, count, str(gpus), str(folder)]
        return [sys.executable, "-m", RAY_LAUNCH_MODULE, *place, *options, "--", *words]
    options += ["--num_processes", str(gpus)] if gpus else []
    return [sys.executable, "-m", "accelerate.commands.launch", *options, *words]


def start_trainer(
    folder: Path, gpus: int, visible_gpus: Mapping[str, str], ray: str = ""
) -> "subprocess.Popen[bytes]":
    """Start it in a session of its own; what it prints is in `output.txt`. Raises OSError.

    gpus, visible_gpus: how many it has, and in which environment it sees them
    (`environment_with_gpus`). ray: as for `launch_command`.
    """
    with (folder / "output.txt").open("ab") as output:
        return subprocess.Popen(
            launch_command(folder, gpus, ray),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env={**os.environ, **visible_gpus},
            start_new_session=True,
        )


_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
_ENGINE_PREFIX = "engine:"


def environment_with_gpus(
    loaded: LoadedConfiguration, run: str, count: int, share: bool
) -> dict[str, str]:
    """The environment in which it sees `count` GPUs, of those that CUDA_VISIBLE_DEVICES names.

    run: its id; empty for one that has none yet. share: engines' GPUs, too, where no other is left.
    Raises HoustonError where fewer are left.
    """
    visible = os.environ.get(_VISIBLE_DEVICES)
    if count > 1 and loaded.config.ray.schedules_gpus:
        return {}
    if not count:  # where this home knows of no GPUs, a person may still show it one
        return (
            {}
            if visible is not None and not loaded.gpus(LOCAL_HOST)
            else gpu_leases.visible_gpus_environment(())
        )
    leases = [
        lease
        for lease in gpu_leases.read_gpu_ledger(loaded.home).leases
        if _is_leased_by_other(lease, run)
    ]
    if visible is not None and not leases:
        return {}
    gpus = (
        _visible_gpus(visible, leases)
        if visible is not None
        else range(max(loaded.gpus(LOCAL_HOST), count))
    )
    used = {
        lease.gpu for lease in leases if not (share and lease.holder.startswith(_ENGINE_PREFIX))
    }
    engines = {lease.gpu for lease in leases} - used
    free = sorted((gpu for gpu in gpus if gpu not in used), key=lambda gpu: gpu in engines)
    if len(free) < count:
        raise _too_few_gpus(count, len(free), len(gpus), leases, share)
    return gpu_leases.visible_gpus_environment(free[:count])


def _is_leased_by_other(lease: GpuLease, run: str) -> bool:
    """Whether somebody else has it; what a daemon that is gone has left for this run is its own."""
    return lease.host == LOCAL_HOST and lease.holder != f"trainer:{run}"


def _visible_gpus(visible: str, leases: list[GpuLease]) -> list[int]:
    """The GPUs that CUDA_VISIBLE_DEVICES names. Raises HoustonError for names that are no numbers:
    leases are kept by number."""
    words = [word.strip() for word in visible.split(",") if word.strip() not in ("", "-1")]
    if not all(word.isdecimal() for word in words):
        raise UsageError(
            f"{_VISIBLE_DEVICES} does not name GPUs by number, and {_lease_words(leases)}.",
            NOTHING_TRAINED_MESSAGE,
            f"Name them by number: {_VISIBLE_DEVICES}=1",
        )
    return [int(word) for word in words]


def _too_few_gpus(
    count: int, free: int, total: int, leases: Collection[GpuLease], share: bool
) -> HoustonError:
    could_share = any(lease.holder.startswith(_ENGINE_PREFIX) for lease in leases) and not share
    return Busy(
        f"It asks for {pluralize(count, 'GPU')}, and {free} of {total}"
        f" {'is' if free == 1 else 'are'} free:"
        f" {_lease_words(leases)}.",
        NOTHING_TRAINED_MESSAGE,
        "Train as a child of the daemon (houston daemon start, no --alone): it waits for its turn"
        + (", or next to engines with --share-gpus" if could_share else ""),
    )


def _lease_words(leases: Collection[GpuLease]) -> str:
    return f"leased are {gpu_leases.describe_gpu_leases(LOCAL_HOST, list(leases))}"


POLL_SECONDS = 0.5


def follow_process(child: "subprocess.Popen[bytes]", folder: RunFolder) -> str:
    """Follow a process of ours. Ctrl-C asks it to save and end, a second one ends it."""
    interrupts = 0

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += 1
        child.send_signal(signal.SIGTERM if interrupts == 1 else signal.SIGKILL)

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    printer = _ProgressPrinter(folder)
    while True:
        try:
            code = child.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            printer.show()
        else:
            printer.show()
            return settle_run(folder, code).state


def follow_daemon_run(loaded: LoadedConfiguration, folder: TrainingRunFolder) -> str:
    """Follow a child of the daemon. Ctrl-C only stops following."""
    try:
        return _follow_until_ended(loaded, folder)
    except KeyboardInterrupt:
        run = folder.path.name
        command_output.print_note(
            f"\n{run} continues.\n  next: houston train show {run}, or houston train cancel {run}"
        )
        raise


def _follow_until_ended(loaded: LoadedConfiguration, folder: TrainingRunFolder) -> str:
    printer = _ProgressPrinter(folder)
    with Reader(loaded.home) as reader:
        while True:
            record = reader.run(policy_queries.find_training_run(folder.path.name))
            if record is not None and record.state == "queued":
                printer.say(record.reason)  # it has made no progress that could be shown
            else:
                printer.show()
            if record is not None and record.state in ENDED_RUN_STATES:
                return record.state
            if find_running_daemon(loaded.home) is None:
                raise HoustonError(
                    f"The daemon ended; {folder.path.name} continues when it is back.",
                    next="houston daemon start",
                    code=ExitCode.DAEMON_NOT_RUNNING,
                )
            time.sleep(POLL_SECONDS)


class _ProgressPrinter:
    """Lines of a run on stderr, each once."""

    def __init__(self, folder: TrainingRunFolder) -> None:
        self._folder = folder
        self._last = ""

    def show(self) -> None:
        """What is new since the last look."""
        progress = run_progress.read_progress(self._folder.path)
        if progress is not None:
            self.say(policy_and_run_files.describe_training_progress(progress))

    def say(self, line: str) -> None:
        """A line, if there is one and it is not the one before."""
        if line and line != self._last:
            self._last = line
            command_output.print_note(line)
