"""Memory of a trainer: the peak that a run will need, what is free, and advice where that is too
little.

Three short passes of the real model, adapter and loss are measured
(docs/decisions.md#peak-memory-is-measured-on-three-short-passes). They give the bytes per token;
gradients and the optimizer's state are added. A run that needs more than there is, is refused
before its first step, with settings that would fit.
"""

import ctypes
import os
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from houston_daemon.training.runs import run_progress
from houston_daemon.training.sft.batch_plan import OptimizerStep
from houston_daemon.training.sft.sft_recipe import NOTHING_TRAINED_MESSAGE
from houston_daemon.training.sft.sft_run_folder import RunFolder
from houston_daemon.training.sft.weighted_loss import SLICE_BYTES
from houston_shared.errors import HoustonError

_MEASURED_TOKENS = (32, 64, 128)
"""Tokens of the passes that are measured."""
_GRADIENT_BYTES = 4
_ADAM_BYTES = 8
"""Bytes for each weight that is trained: its gradient, and AdamW's two means."""
_HEAP_FACTOR = {"cpu": 1.9, "cuda": 1.1}
"""How much more the allocator holds than lives in it: on processors glibc's heap is left with holes
between what is kept and what was given back (1.0 to 1.75 measured, bench/training_memory.py)."""
_MAPPED_HEAP_FACTOR = 1.15
"""The same where large pieces have maps of their own (`return_freed_memory`)."""
_LOGIT_SLICES = 4
"""Slices of logits that stand at once: as computed, in float32, their slope, and a copy."""


@dataclass(frozen=True)
class PeakMemory:
    """Bytes that a process needs, by the tokens of its largest pass."""

    resident_bytes: int
    """What it has before the first pass: model, libraries, rows."""
    trained: int
    """Gradients and the optimizer's state."""
    bytes_per_token: float
    """Kept for the way back, a token."""
    bytes_per_token_squared: float
    """The same, a token squared: of attentions that keep a matrix."""
    input_bytes_per_token: float
    """With gradient checkpointing, a token: the input of each layer."""
    layers: int
    fixed_bytes: int
    """Kept however long a pass is, slices of logits, and the gradient of the head's weights."""

    heap: float
    """How much more the allocator holds than lives in it."""

    def bytes(self, tokens: int, checkpointing: bool) -> int:
        """The most at once, for passes of up to so many tokens."""
        whole = self.bytes_per_token * tokens + self.bytes_per_token_squared * tokens * tokens
        layer = whole / self.layers
        alive = whole + layer
        heap = self.heap
        if checkpointing:
            alive, heap = (
                self.input_bytes_per_token * tokens + 3 * layer,
                min(heap, _MAPPED_HEAP_FACTOR),
            )
        return round(self.resident_bytes + self.trained + self.fixed_bytes + heap * alive)

    def longest(self, free: int, checkpointing: bool) -> int:
        """The most tokens of a pass for which so many bytes beside those standing are enough."""
        low, high = 0, 1 << 20
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.bytes(middle, checkpointing) - self.resident_bytes <= free
            low, high = (middle, high) if fits else (low, middle - 1)
        return low


def measure_peak(trainer: Any, share: float, bf16: bool) -> PeakMemory:
    """Of a trainer whose model is where it is trained.

    share: of tokens that are trained. bf16: whether it multiplies in bfloat16.
    """
    model = trainer.model
    device = next(model.parameters()).device
    config = model.config.get_text_config()
    training = model.training
    model.train()
    with torch.random.fork_rng(devices=[device.index or 0] if device.type == "cuda" else []):
        saved = [_saved_bytes(trainer, size, share, bf16) for size in _MEASURED_TOKENS]
    model.train(training)
    token, squared, once = _fit_per_token(saved)
    numbers = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    head = model.get_output_embeddings()
    own = 4 * head.weight.numel() if head.weight.requires_grad else 0
    return PeakMemory(
        resident_bytes=_process_bytes(device),
        trained=numbers * (_GRADIENT_BYTES + _ADAM_BYTES),
        bytes_per_token=token,
        bytes_per_token_squared=squared,
        input_bytes_per_token=4 * config.num_hidden_layers * config.hidden_size,
        layers=config.num_hidden_layers,
        fixed_bytes=once + _LOGIT_SLICES * SLICE_BYTES + own,
        heap=_HEAP_FACTOR.get(device.type, _HEAP_FACTOR["cuda"]),
    )


def _fit_per_token(saved: Sequence[int]) -> tuple[float, float, int]:
    """Bytes a token, a token squared, and once, by three passes of which each is twice as long."""
    (a, b, c), (x, y, z) = _MEASURED_TOKENS, saved
    low, high = (y - x) / (b - a), (z - y) / (c - b)
    squared = max(0.0, (high - low) / (c - a))
    token = high - squared * (b + c)
    return token, squared, max(0, round(x - token * a - squared * a * a))


def _process_bytes(device: torch.device) -> int:
    """Bytes that this process has now."""
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _saved_bytes(trainer: Any, tokens: int, share: float, bf16: bool) -> int:
    """Bytes that a pass of so many tokens keeps for its way back, beside the weights."""
    model = trainer.model
    device = next(model.parameters()).device
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    saved: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with (
        saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast(device.type, torch.bfloat16, enabled=bf16),
    ):
        trainer._passes = 1
        loss = trainer.compute_loss(model, _measured_pass(tokens, share, device))
    del loss  # until here the graph has them, so that no place was given to another
    return sum(saved.values())


def _measured_pass(tokens: int, share: float, device: torch.device) -> dict[str, Any]:
    every = max(1, round(1 / share))
    predicts = torch.arange(0, tokens - 1, every, device=device)
    ids = (torch.arange(tokens, device=device) % 7)[None]
    return {
        "input_ids": ids,
        "position_ids": torch.arange(tokens, device=device)[None],
        "predicts": predicts,
        "targets": ids[0, predicts + 1],
        "weights": torch.ones(len(predicts), device=device),
    }


_MIN_ROW_TOKENS = 64
"""Tokens of rows that are worth cutting to."""
_SHARDING_ADVICE = "on several GPUs with the model in shards (--accelerate fsdp --gpus N)"
_MMAP_THRESHOLD, _LARGE_BYTES = -3, 1 << 20
"""glibc's M_MMAP_THRESHOLD, and bytes from which a piece has a map of its own."""
_GIGABYTE = 1e9


def return_freed_memory() -> None:
    """Have glibc return large pieces to the system as they are freed.

    Its heap keeps them: of 4,096 tokens with gradient checkpointing 2.8 GB in place of 1.5 GB. It
    costs a third of the speed on processors, so it is for runs that asked for less memory.
    """
    if hasattr(libc := ctypes.CDLL(None), "mallopt"):  # of another libc there is none
        libc.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)


def free_bytes(device: torch.device) -> int:
    """Bytes that this machine, or GPU, can still give."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free + cached)
    lines = Path("/proc/meminfo").read_text().splitlines()
    meminfo = dict(line.split(":", 1) for line in lines)
    available = int(meminfo["MemAvailable"].split()[0]) * 1024
    return max(0, min([available, *_cgroup_bytes_left()]))


def _cgroup_bytes_left(root: Path = Path("/sys/fs/cgroup"), own: str = "") -> Iterator[int]:
    """Bytes that each control group of this process leaves it, those of older kernels, too."""
    for line in (own or Path("/proc/self/cgroup").read_text()).splitlines():
        _, kinds, path = line.split(":", 2)
        if kinds not in ("", "memory"):
            continue
        base = root / kinds
        limit, usage = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes")
            if kinds
            else ("memory.max", "memory.current")
        )
        for part in (path, *map(str, Path(path).parents)):
            group = base / part.lstrip("/")
            try:
                most, used = (group / limit).read_text().strip(), int((group / usage).read_text())
                lines = (group / "memory.stat").read_text().splitlines()
                stat = dict(stat_line.split() for stat_line in lines)
            except OSError:
                continue  # not there: no limit of that kind
            if most != "max":
                yield int(most) - used + int(stat.get("total_inactive_file", stat["inactive_file"]))


def refuse_too_large(
    peak: PeakMemory,
    folder: RunFolder,
    lengths: Sequence[int],
    steps: Sequence[OptimizerStep],
    free: int,
    say: Callable[[str], None],
) -> None:
    """Raise HoustonError, with what would fit, where a run needs more than is `free` beside what
    it has.

    lengths: tokens of each row. say: into the log.
    """
    recipe = folder.spec.recipe
    longest, largest = _row_and_pass_tokens(lengths, steps)
    needed = peak.bytes(largest, recipe.gradient_checkpointing) - peak.resident_bytes
    amount = (
        f"up to {needed / _GIGABYTE:.1f} GB more memory, of {free / _GIGABYTE:.1f} GB that are free"
    )
    say(f"passes of up to {largest:,} tokens will need {amount}")
    if needed <= free or not recipe.check_memory:
        return
    raise HoustonError(
        f"Training will need {amount}: its largest pass has {largest:,} tokens,"
        f" its longest row {longest:,}.",
        NOTHING_TRAINED_MESSAGE,
        f"Next: {_advice_that_fits(peak, folder, longest, largest, free)}",
    )


def _advice_that_fits(
    peak: PeakMemory, folder: RunFolder, longest: int, largest: int, free: int
) -> str:
    """What would fit: of this run, else of another."""
    recipe = folder.spec.recipe
    plain, less = (peak.longest(free, flag) for flag in (recipe.gradient_checkpointing, True))
    off = "" if recipe.gradient_checkpointing else "--set gradient_checkpointing=true"
    if largest > longest and plain >= longest:
        return f"{folder.resume_command} --set pack_tokens={plain}"
    if off and less >= largest:
        return f"{folder.resume_command} {off}"
    if off and less >= longest:
        return f"{folder.resume_command} {off} --set pack_tokens={less}"
    if less >= _MIN_ROW_TOKENS:
        return f"a new run with shorter rows, {off} --set max_length={less}".replace("  ", " ")
    smaller = "an adapter in place of all weights, or " if recipe.full else ""
    return f"free memory, or a new run with {smaller}a smaller model, or {_SHARDING_ADVICE}"


def _row_and_pass_tokens(lengths: Sequence[int], steps: Sequence[OptimizerStep]) -> tuple[int, int]:
    """Of the longest row and of the largest pass."""
    passes = [pack for step in steps for share in step.passes_per_process for pack in share if pack]
    longest = max(lengths[row] for pack in passes for row in pack)
    return longest, max(sum(lengths[row] for row in pack) for pack in passes)


def peak_bytes() -> int:
    """The most bytes that this process has had: of its GPU, or of the machine."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def is_out_of_memory(problem: BaseException) -> bool:
    """Whether this is what an allocator says that has nothing left."""
    text = str(problem)
    return isinstance(problem, MemoryError | torch.OutOfMemoryError) or (
        isinstance(problem, RuntimeError)
        and ("can't allocate memory" in text or "out of memory" in text.lower())
    )


@contextmanager
def explain_out_of_memory(
    folder: RunFolder, lengths: Sequence[int], steps: Sequence[OptimizerStep], *, training: bool
) -> Iterator[None]:
    """Raise HoustonError, with what helps, where memory runs out for these passes.

    lengths: tokens of each row. training: whether there are gradients.
    """
    try:
        yield
    except Exception as problem:
        if is_out_of_memory(problem):
            raise out_of_memory_in_pass(folder, lengths, steps, training=training) from problem
        raise


def out_of_memory_in_pass(
    folder: RunFolder, lengths: Sequence[int], steps: Sequence[OptimizerStep], *, training: bool
) -> HoustonError:
    """What to say where memory ran out for these passes."""
    longest, largest = _row_and_pass_tokens(lengths, steps)
    settings = []
    if largest > longest:
        settings.append(f"pack_tokens={max(longest, largest // 2)}")
    if training and not folder.spec.recipe.gradient_checkpointing:
        settings.append("gradient_checkpointing=true")
    other = (
        f"a new run with shorter rows (--set max_length={max(1, longest // 2)}) or"
        f" {_SHARDING_ADVICE}"
    )
    again = " ".join([folder.resume_command, *(f"--set {setting}" for setting in settings)])
    return HoustonError(
        f"Memory ran out with passes of up to {largest} tokens; the longest row has {longest}.",
        f"Training ended there. {folder.what_is_kept}",
        f"Next: {again}; if that is still too much, {other}" if settings else f"Next: {other}",
    )


def out_of_memory_elsewhere(folder: RunFolder) -> HoustonError:
    """What to say where it ran out before the first pass or after the last."""
    progress = run_progress.read_progress(folder.path)
    smaller = "with an adapter in place of all weights, or " if folder.spec.recipe.full else ""
    return HoustonError(
        f"Memory ran out {(progress and progress.message) or 'outside the passes'}.",
        f"Training ended there. {folder.what_is_kept}",
        f"Next: a new run with a smaller model, {smaller}{_SHARDING_ADVICE}",
    )
