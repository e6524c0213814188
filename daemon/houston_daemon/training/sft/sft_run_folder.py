"""The folder of one training run: its settings, its data, its lock, its checkpoints, its results.

Names and small files only. One trainer at a time holds the folder (a file lock). How the training
state is split over processes (plain, FSDP, DeepSpeed) decides who can read a checkpoint, so a
change of that kind is refused here. It imports no torch, so that commands and the daemon can use
it.
"""

import signal
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.training.runs import run_checkpoints, run_progress
from houston_daemon.training.runs.run_folder import TrainingRunFolder
from houston_daemon.training.sft.sft_recipe import NOTHING_TRAINED_MESSAGE, SftRecipe
from houston_shared import atomic_file
from houston_shared.errors import ExitCode, HoustonError, NotFound, UsageError
from houston_shared.home import Home
from houston_shared.policy_and_run_files import TrainingProgress, training_folder


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """`recipe.json`: all that the program needs to know besides the data."""

    run: str
    """Id of the run, the folder's name."""
    name: str = "policy"
    """Of the policy that comes out: `NAME@n`."""
    parent: str = ""
    """The policy that training goes on from; empty for a model that is none."""
    home: str = ""
    """The home that the run belongs to."""
    recipe: SftRecipe
    """With the base model filled in."""
    base_hash: str = ""
    """What the base model is, by content, as the run was asked for; empty in older files."""
    adapter_hash: str = ""
    """The same of the adapter that it goes on from, where it does."""
    gpus: int | None = None
    """GPUs that were asked for; None: one, where there are any."""
    share_gpus: bool = False
    """Whether it may have GPUs that an engine uses."""
    beside: bool = False
    """Whether it runs beside a daemon that knows of it, and hears from it how it ends."""
    rollouts: tuple[str, ...] = ()
    """What was exported for it, where it was not given data."""


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """`result.json`: figures of a finished run, for the lineage of its policy."""

    steps: int
    rows: int
    tokens: int
    """Computed, with repetitions."""
    trained: int
    """Tokens with a weight, of one pass over the data."""
    cut: int
    dropped: int
    loss_first: float
    """Of the first step."""
    loss_mean_last_10: float
    """Mean of the last ten steps, or of all where there were fewer; `loss_last` in older files."""
    held_out_before: float | None = None
    held_out_after: float | None = None
    """Loss on rows that were held out, where the export has some."""
    held_out_rows: int = 0
    """On how many of them, spread evenly over the file."""
    seconds: float
    """Of training since it was started last."""
    tokens_per_second: float
    memory_bytes: int
    processes: int
    device: str
    versions: dict[str, str]


class RunFolder(TrainingRunFolder):
    """Paths and small files of a run."""

    train_command = "houston train sft"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.data = path / "data"
        self.rows = path / "rows.arrow"
        self.held_out = path / "held_out.arrow"

    @property
    def spec(self) -> RunSpec:
        """What was asked. Raises HoustonError where this is no folder of a run."""
        if not (self.path / "recipe.json").is_file():
            raise NotFound(
                f"There is no training run {self.path.name!r} in {self.path.parent}.",
                NOTHING_TRAINED_MESSAGE,
                "houston train list",
            )
        return self._read_spec(RunSpec, "a run of training")

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest of the data; empty where there is none."""
        return atomic_file.read_json_file(self.data / "manifest.json", dict[str, Any]) or {}

    def keep_manifest(self) -> None:
        """Keep the manifest of the rows as they are taken: data that was exported elsewhere may be
        replaced before the run ends."""
        current, copy = self.data / "manifest.json", self.path / "manifest.json"
        if current.is_file() and not copy.exists():
            atomic_file.write_atomically(copy, current.read_bytes())

    @property
    def hashes(self) -> dict[str, str]:
        """SHA-256 of the data's files by name, as the manifest has them."""
        files = self.manifest.get("files") or ()
        return {str(file["name"]): str(file["sha256"]) for file in files}

    @property
    def result(self) -> RunResult | None:
        """The figures; None before it has finished."""
        try:
            record = msgspec.json.decode(
                (self.path / "result.json").read_bytes(), type=dict[str, Any]
            )
            if "loss_last" in record:
                record["loss_mean_last_10"] = record.pop("loss_last")
            return msgspec.convert(record, RunResult)
        except (OSError, msgspec.DecodeError):
            return None


def folder_of_run(home: Home, run: str) -> RunFolder:
    """The folder of a run of this home."""
    return RunFolder(training_folder(home) / run)


def _memory_advice(folder: RunFolder) -> str:
    """What needs less memory than a run that was killed."""
    recipe = folder.spec.recipe
    shorter = f"a new run with shorter rows (--set max_length={max(1, recipe.max_length // 2)})"
    adapter = " or an adapter in place of all weights" if recipe.full else ""
    if recipe.gradient_checkpointing:
        return f"{shorter}{adapter}; if memory was not short, {folder.resume_command}"
    less = f"{folder.resume_command} --set gradient_checkpointing=true"
    return f"{less}; if that is still too much, {shorter}{adapter}"


def settle_run(folder: RunFolder, code: int) -> TrainingProgress:
    """How a run stands after its program ended with `code` (below 0: the signal).

    A program that was killed could not say so itself: this writes `failed` for it.
    """
    progress = run_progress.read_progress(folder.path) or TrainingProgress(state="queued")
    if code == ExitCode.BUSY:  # another trainer writes there
        return msgspec.structs.replace(progress, state="failed")
    if progress.state in ("queued", "running"):
        ending = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        memory, next = "", folder.resume_command
        if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
            memory = ": most likely memory ran out, and the kernel ended it"
            next = _memory_advice(folder)
        writer = run_progress.ProgressWriter(folder.path)
        kept_note = folder.what_is_kept
        writer.set_state("failed", f"The trainer {ending}{memory}. {kept_note} Next: {next}")
        writer.log(writer.now.message)
        return writer.now
    return progress


PLAIN_KIND = "plain"
SHARDING_KINDS = {PLAIN_KIND: "without shards", "fsdp": "by FSDP", "deepspeed": "by DeepSpeed"}
"""As a checkpoint's marker has them, and in words."""


def kind_of_distributed(distributed: str) -> str:
    """The kind of what accelerate calls `distributed_type`."""
    word = distributed.lower()
    return word if word in SHARDING_KINDS else PLAIN_KIND


def sharding_kind(recipe: SftRecipe) -> str:
    """The kind in which a recipe trains where there are GPUs; on processors nothing is sharded.

    Raises HoustonError for a configuration that tells nothing.
    """
    if not recipe.accelerate or recipe.device == "cpu":
        return PLAIN_KIND
    configuration = read_accelerate_file(recipe.accelerate)
    if configuration.get("use_cpu"):
        return PLAIN_KIND
    return kind_of_distributed(str(configuration.get("distributed_type")))


def read_accelerate_file(file: str) -> dict[str, Any]:
    """A configuration of accelerate. Raises HoustonError where it cannot be read."""
    import yaml  # 20 ms that a run without a configuration does not pay

    try:
        configuration: Any = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as problem:
        cause = str(problem).partition("\n")[0]
        raise HoustonError(
            f"The configuration {file} of accelerate cannot be read: {cause}.",
            "Nothing was trained further.",
            "Name another: --accelerate cpu, fsdp, deepspeed or a file",
        ) from None
    return configuration if isinstance(configuration, dict) else {}


def check_kind_change(folder: RunFolder, recipe: SftRecipe) -> None:
    """Raise HoustonError where a resumed run with `recipe` in place of its own could not read its
    newest checkpoint. Call it before the recipe is written into the folder."""
    if (now := sharding_kind(recipe)) != sharding_kind(folder.spec.recipe):
        check_checkpoint_kind(folder, now)


def check_checkpoint_kind(folder: RunFolder, now: str) -> None:
    """Raise HoustonError where the newest checkpoint of a run is of another kind than `now`, in
    which it is about to be trained. Older checkpoints have not noted theirs."""
    newest = run_checkpoints.newest_checkpoint(folder.checkpoints)
    wrote = run_checkpoints.checkpoint_kind(newest) if newest else ""
    if not newest or wrote in ("", now):
        return
    setting = "--set accelerate=" if wrote == PLAIN_KIND else f"--set accelerate={wrote}"
    raise UsageError(
        f"{newest.name} was written {SHARDING_KINDS.get(wrote, wrote)}, and training"
        f" {SHARDING_KINDS[now]} cannot "
        "read its optimizer and schedule.",
        f"Nothing was trained further. {folder.what_is_kept}",
        f"Next: {folder.resume_command} {setting}; or start a new run",
    )
