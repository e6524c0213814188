"""Memory of a trainer: the most that it has had, and what to advise when there is no more.

What is advised must need less: fewer tokens in a pass help only while the largest pass holds
several rows, and gradient checkpointing only where it is off.
"""

import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

import torch

from houston_daemon.training.sft import progress
from houston_daemon.training.sft.plan import Step
from houston_daemon.training.sft.run_folder import RunFolder
from houston_shared.errors import HoustonError

_SHARDS = "on several GPUs with the model in shards (--accelerate fsdp --gpus N)"


def most() -> int:
    """The most bytes that this process has had: of its GPU, or of the machine."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def ran_out(problem: BaseException) -> bool:
    """Whether this is what an allocator says that has nothing left."""
    text = str(problem)
    return isinstance(problem, MemoryError | torch.OutOfMemoryError) or (
        isinstance(problem, RuntimeError)
        and ("can't allocate memory" in text or "out of memory" in text.lower())
    )


@contextmanager
def told(
    folder: RunFolder, lengths: Sequence[int], steps: Sequence[Step], *, training: bool
) -> Iterator[None]:
    """Raise HoustonError, with what helps, where memory runs out for these passes.

    lengths: tokens of each row. training: whether there are gradients.
    """
    try:
        yield
    except Exception as problem:
        if ran_out(problem):
            raise with_passes(folder, lengths, steps, training=training) from problem
        raise


def with_passes(
    folder: RunFolder, lengths: Sequence[int], steps: Sequence[Step], *, training: bool
) -> HoustonError:
    """What to say where memory ran out for these passes."""
    shares = chain.from_iterable(step.shares for step in steps)
    passes = [pack for pack in chain.from_iterable(shares) if pack]
    longest = max(lengths[row] for pack in passes for row in pack)
    largest = max(sum(lengths[row] for row in pack) for pack in passes)
    settings = []
    if largest > longest:
        settings.append(f"pack_tokens={max(longest, largest // 2)}")
    if training and not folder.asked.recipe.gradient_checkpointing:
        settings.append("gradient_checkpointing=true")
    other = f"a new run with shorter rows (--set max_length={max(1, longest // 2)}) or {_SHARDS}"
    again = " ".join([folder.again, *(f"--set {one}" for one in settings)])
    return HoustonError(
        f"Memory ran out with passes of up to {largest} tokens; the longest row has {longest}.",
        f"Training ended there. {folder.good}",
        f"Next: {again}; where that is too much still, {other}" if settings else f"Next: {other}",
    )


def beside_passes(folder: RunFolder) -> HoustonError:
    """What to say where it ran out before the first pass or after the last."""
    now = progress.read(folder.path)
    smaller = "with an adapter in place of all weights, or " if folder.asked.recipe.full else ""
    return HoustonError(
        f"Memory ran out {now.message if now and now.message else 'beside the passes'}.",
        f"Training ended there. {folder.good}",
        f"Next: a new run with a smaller model, {smaller}{_SHARDS}",
    )
