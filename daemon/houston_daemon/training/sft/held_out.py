"""The loss on rows that were held out, before training and after it: what was learned beyond the
rows that were trained.

Of many rows it is taken on some, spread evenly over the file: every held-out task has about its
share. It trains nothing, and which rows are held out was decided by the export.
"""

import math

import msgspec
from accelerate.utils import DistributedType

from houston_daemon.training.sft import dataset, memory, plan
from houston_daemon.training.sft.progress import Writer
from houston_daemon.training.sft.recipe import Recipe
from houston_daemon.training.sft.run_folder import RunFolder
from houston_daemon.training.sft.trainer import WeighedTrainer
from houston_daemon.training.sft.watching import Watch
from houston_shared import synced_file

ROWS = 100
"""The most rows on which it is taken."""
_SHARDED = (DistributedType.FSDP, DistributedType.DEEPSPEED)


class Before(msgspec.Struct, frozen=True, kw_only=True):
    """`held_out_before.json`: a run that goes on need not compute it again."""

    loss: float
    rows: int


def spread(rows: int, most: int = ROWS) -> list[int]:
    """At most `most` of so many rows, by number, evenly over all of them."""
    count = min(rows, most)
    return [number * rows // count for number in range(count)]


class HeldOut:
    """Takes it, in every process of the run alike."""

    def __init__(
        self, folder: RunFolder, recipe: Recipe, trainer: WeighedTrainer, packing: bool
    ) -> None:
        """packing: whether several rows share a pass."""
        self._folder = folder
        self._trainer = trainer
        self._kept = folder.path / "held_out_before.json"
        self.rows = 0
        """How many rows it is taken on; 0 where none are held out."""
        if not folder.held_out.is_file():
            return
        rows = dataset.load(folder.held_out)
        self._lengths = rows.lengths
        taken = spread(len(rows.lengths))
        self.rows = len(taken)
        if not taken:
            return
        self._steps = plan.steps(
            rows.lengths,
            [int(row in taken) for row in range(len(rows.lengths))],
            epochs=1,
            batch=len(taken),
            budget=recipe.pack_tokens if packing else 0,
            seed=0,
            processes=trainer.accelerator.num_processes,
        )
        self._passes = dataset.Passes(rows, self._steps, packing)

    def before(self, watch: Watch, writer: Writer) -> float | None:
        """The loss of what training begins from; None without rows, where the model is to be put
        into shards first, and where the run was asked to end meanwhile."""
        if not self.rows or self._trainer.accelerator.distributed_type in _SHARDED:
            return None  # nobody has put such a model onto the devices yet
        if (kept := self._before()) is not None:
            return kept
        loss = self._taken("before training", watch, writer)
        if loss is not None and math.isfinite(loss) and self._trainer.is_world_process_zero():
            synced_file.write(self._kept, msgspec.json.encode(Before(loss=loss, rows=self.rows)))
        return loss

    def after(self, watch: Watch, writer: Writer) -> float | None:
        """The loss of what was trained; None without rows, and where it was asked to end."""
        return self._taken("after training", watch, writer) if self.rows else None

    def _before(self) -> float | None:
        """What was taken earlier, on as many rows."""
        try:
            kept = msgspec.json.decode(self._kept.read_bytes(), type=Before)
        except (OSError, msgspec.DecodeError):
            return None
        return kept.loss if kept.rows == self.rows else None

    def _taken(self, when: str, watch: Watch, writer: Writer) -> float | None:
        what = f"{self.rows} of {len(self._lengths)} held-out rows {when}"
        writer.set("running", f"taking the loss on {what}")
        with memory.told(self._folder, self._lengths, self._steps, training=False):
            device = self._trainer.args.device
            loss: float | None = self._trainer.held_out(self._passes, lambda: watch.asked(device))
        if loss is not None:
            writer.say(f"loss {loss:.4f} on {what}")
        return loss
