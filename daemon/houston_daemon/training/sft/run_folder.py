"""The folder of one run: what was asked, the data, how it stands, its checkpoints, what came out.

Only names and the small files; it imports no torch, so that commands and the daemon can use it.
"""

import signal
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.training.sft import checkpoints, progress
from houston_daemon.training.sft.recipe import NOT_TRAINED, Recipe
from houston_shared import synced_file
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.policy_names import training_folder
from houston_shared.training_progress import Progress


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """`recipe.json`: all that the program needs to know besides the data."""

    run: str
    """Id of the run, the folder's name."""
    name: str = "policy"
    """Of the policy that comes out: `NAME@n`."""
    parent: str = ""
    """The policy that training goes on from; empty for a model that is none."""
    home: str = ""
    """The home that the run belongs to."""
    recipe: Recipe
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


class Result(msgspec.Struct, frozen=True, kw_only=True):
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


class RunFolder:
    """Paths and small files of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = path / "data"
        self.checkpoints = path / "checkpoints"
        self.output = path / "output"
        self.rows = path / "rows.arrow"
        self.held_out = path / "held_out.arrow"

    @property
    def asked(self) -> Asked:
        """What was asked. Raises HoustonError where this is no folder of a run."""
        try:
            return msgspec.json.decode((self.path / "recipe.json").read_bytes(), type=Asked)
        except FileNotFoundError:
            raise HoustonError(
                f"There is no training run {self.path.name!r} in {self.path.parent}.",
                NOT_TRAINED,
                "houston train list",
            ) from None
        except (OSError, msgspec.DecodeError) as problem:
            raise HoustonError(
                f"{self.path} is not the folder of a run of training: {problem}.",
                NOT_TRAINED,
                "houston train sft R…",
            ) from None

    def ask(self, asked: Asked) -> None:
        """Write what is asked; the folder may be there already."""
        self.path.mkdir(parents=True, exist_ok=True)
        text = msgspec.json.format(msgspec.json.encode(asked), indent=1)
        synced_file.write(self.path / "recipe.json", text)

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest of the data; empty where there is none."""
        return manifest(self.data)

    def keep_manifest(self) -> None:
        """Keep the manifest of the rows as they are taken: data that was exported elsewhere may be
        replaced before the run ends."""
        there, kept = self.data / "manifest.json", self.path / "manifest.json"
        if there.is_file() and not kept.exists():
            synced_file.write(kept, there.read_bytes())

    @property
    def hashes(self) -> dict[str, str]:
        """SHA-256 of the data's files by name, as the manifest has them."""
        files = self.manifest.get("files") or ()
        return {str(one["name"]): str(one["sha256"]) for one in files}

    @property
    def result(self) -> Result | None:
        """The figures; None before it has finished."""
        try:
            said = msgspec.json.decode(
                (self.path / "result.json").read_bytes(), type=dict[str, Any]
            )
            if "loss_last" in said:
                said["loss_mean_last_10"] = said.pop("loss_last")
            return msgspec.convert(said, Result)
        except (OSError, msgspec.DecodeError):
            return None

    def write_result(self, result: Result) -> None:
        """Keep the figures."""
        text = msgspec.json.format(msgspec.json.encode(result), indent=1)
        synced_file.write(self.path / "result.json", text)

    @property
    def again(self) -> str:
        """The command that goes on with it."""
        return f"houston train sft --resume {self.path.name}"

    @property
    def good(self) -> str:
        """Which checkpoint is the last whole one, in words."""
        found = checkpoints.newest(self.checkpoints)
        return f"The last whole checkpoint is {found}." if found else "There is no checkpoint yet."


def of(home: Home, run: str) -> RunFolder:
    """The folder of a run of this home."""
    return RunFolder(training_folder(home) / run)


def manifest(data: Path) -> dict[str, Any]:
    """`manifest.json` of exported data; empty where there is none."""
    try:
        found = msgspec.json.decode((data / "manifest.json").read_bytes())
    except (OSError, msgspec.DecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _lower(folder: RunFolder) -> str:
    """What needs less memory than a run that was killed."""
    recipe = folder.asked.recipe
    shorter = f"a new run with shorter rows (--set max_length={max(1, recipe.max_length // 2)})"
    adapter = " or an adapter in place of all weights" if recipe.full else ""
    if recipe.gradient_checkpointing:
        return f"{shorter}{adapter}; where memory was not short, {folder.again}"
    less = f"{folder.again} --set gradient_checkpointing=true"
    return f"{less}; where that is too much still, {shorter}{adapter}"


def settle(folder: RunFolder, code: int) -> Progress:
    """How a run stands after its program ended with `code` (below 0: the signal).

    A program that was killed could not say so itself: this writes `failed` for it.
    """
    now = progress.read(folder.path) or Progress(state="queued")
    if code == ExitCode.BUSY:  # another trainer writes there
        return msgspec.structs.replace(now, state="failed")
    if now.state in ("queued", "running"):
        why = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        memory, next = "", folder.again
        if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
            memory, next = ": most likely memory ran out, and the kernel ended it", _lower(folder)
        writer = progress.Writer(folder.path)
        writer.set("failed", f"The trainer {why}{memory}. {folder.good} Next: {next}")
        writer.say(writer.now.message)
        return writer.now
    return now
