"""How the state of training lies over processes, which decides who can read a checkpoint.

Plain training (one process, or several that each have all of it), FSDP and DeepSpeed keep optimizer
and schedule in files of their own, and find none, or pass them over in silence, where another kind
has written them. It reads configurations of accelerate and imports no torch.
"""

from pathlib import Path
from typing import Any

from houston_daemon.training.sft import checkpoints
from houston_daemon.training.sft.recipe import Recipe
from houston_daemon.training.sft.run_folder import RunFolder
from houston_shared.errors import ExitCode, HoustonError

PLAIN = "plain"
KINDS = {PLAIN: "without shards", "fsdp": "by FSDP", "deepspeed": "by DeepSpeed"}
"""As a checkpoint's marker has them, and in words."""


def kind_of(distributed: str) -> str:
    """The kind of what accelerate calls `distributed_type`."""
    word = distributed.lower()
    return word if word in KINDS else PLAIN


def kind(recipe: Recipe) -> str:
    """The kind in which a recipe trains where there are GPUs; on processors nothing is sharded.

    Raises HoustonError for a configuration that tells nothing.
    """
    if not recipe.accelerate or recipe.device == "cpu":
        return PLAIN
    import yaml  # 20 ms that a run without a configuration does not pay

    try:
        found: Any = yaml.safe_load(Path(recipe.accelerate).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as problem:
        said = str(problem).partition("\n")[0]
        raise HoustonError(
            f"The configuration {recipe.accelerate} of accelerate cannot be read: {said}.",
            "Nothing was trained further.",
            "Name another: --accelerate cpu, fsdp, deepspeed or a file",
        ) from None
    if not isinstance(found, dict) or found.get("use_cpu"):
        return PLAIN
    return kind_of(str(found.get("distributed_type")))


def check_change(folder: RunFolder, recipe: Recipe) -> None:
    """Raise HoustonError where a run that goes on with `recipe` in place of its own could not read
    its newest checkpoint: to be asked before that is written into its folder."""
    if (now := kind(recipe)) != kind(folder.asked.recipe):
        check(folder, now)


def check(folder: RunFolder, now: str) -> None:
    """Raise HoustonError where the newest checkpoint of a run is of another kind than `now`, in
    which it is about to be trained. Older checkpoints have not noted theirs."""
    newest = checkpoints.newest(folder.checkpoints)
    wrote = checkpoints.kind(newest) if newest else ""
    if not newest or wrote in ("", now):
        return
    setting = "--set accelerate=" if wrote == PLAIN else f"--set accelerate={wrote}"
    raise HoustonError(
        f"{newest.name} was written {KINDS.get(wrote, wrote)}, and training {KINDS[now]} cannot "
        "read its optimizer and schedule.",
        f"Nothing was trained further. {folder.good}",
        f"Next: {folder.again} {setting}; or start a new run",
        ExitCode.USAGE,
    )
