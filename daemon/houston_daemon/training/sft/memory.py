"""Memory of a trainer: what is free, the most that it has had, and what to advise for less.

A run that will need more than there is, is refused before its first step with what would fit
(`check`). What is advised must need less: fewer tokens in a pass help only while the largest pass
holds several rows, and gradient checkpointing only where it is off.
"""

import ctypes
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from houston_daemon.training.sft import progress
from houston_daemon.training.sft.peak import Peak
from houston_daemon.training.sft.plan import Step
from houston_daemon.training.sft.recipe import NOT_TRAINED
from houston_daemon.training.sft.run_folder import RunFolder
from houston_shared.errors import HoustonError

_SHORTEST = 64
"""Tokens of rows that are worth cutting to."""
_SHARDS = "on several GPUs with the model in shards (--accelerate fsdp --gpus N)"


_MMAP_THRESHOLD, _LARGE = -3, 1 << 20
"""glibc's M_MMAP_THRESHOLD, and bytes from which a piece has a map of its own."""
_GB = 1e9


def give_back() -> None:
    """Have glibc return large pieces to the system as they are freed.

    Its heap keeps them: of 4,096 tokens with gradient checkpointing 2.8 GB in place of 1.5 GB. It
    costs a third of the speed on processors, so it is for runs that asked for less memory.
    """
    if hasattr(libc := ctypes.CDLL(None), "mallopt"):  # of another libc there is none
        libc.mallopt(_MMAP_THRESHOLD, _LARGE)


def free(device: torch.device) -> int:
    """Bytes that this machine, or GPU, can still give."""
    if device.type == "cuda":
        there, _ = torch.cuda.mem_get_info(device)
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(there + cached)
    lines = Path("/proc/meminfo").read_text().splitlines()
    known = dict(line.split(":", 1) for line in lines)
    found = [int(known["MemAvailable"].split()[0]) * 1024]
    return max(0, min([*found, *_left_of_cgroups()]))


def _left_of_cgroups(root: Path = Path("/sys/fs/cgroup"), own: str = "") -> Iterator[int]:
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
                most, now = (group / limit).read_text().strip(), int((group / usage).read_text())
                stat = dict(one.split() for one in (group / "memory.stat").read_text().splitlines())
            except OSError:
                continue  # not there: no limit of that kind
            if most != "max":
                yield int(most) - now + int(stat.get("total_inactive_file", stat["inactive_file"]))


def check(
    peak: Peak,
    folder: RunFolder,
    lengths: Sequence[int],
    steps: Sequence[Step],
    there: int,
    say: Callable[[str], None],
) -> None:
    """Raise HoustonError, with what would fit, where a run will need more than `there` is beside
    what it has.

    lengths: tokens of each row. say: into the log.
    """
    recipe = folder.asked.recipe
    longest, largest = _tokens(lengths, steps)
    needed = peak.bytes(largest, recipe.gradient_checkpointing) - peak.standing
    told = f"up to {needed / _GB:.1f} GB more memory, of {there / _GB:.1f} GB that are free"
    say(f"passes of up to {largest:,} tokens will need {told}")
    if needed <= there or not recipe.check_memory:
        return
    raise HoustonError(
        f"Training will need {told}: its largest pass has {largest:,} tokens,"
        f" its longest row {longest:,}.",
        NOT_TRAINED,
        f"Next: {_fitting(peak, folder, longest, largest, there)}",
    )


def _fitting(peak: Peak, folder: RunFolder, longest: int, largest: int, there: int) -> str:
    """What would fit: of this run, else of another."""
    recipe = folder.asked.recipe
    plain, less = (peak.longest(there, one) for one in (recipe.gradient_checkpointing, True))
    off = "" if recipe.gradient_checkpointing else "--set gradient_checkpointing=true"
    if largest > longest and plain >= longest:
        return f"{folder.again} --set pack_tokens={plain}"
    if off and less >= largest:
        return f"{folder.again} {off}"
    if off and less >= longest:
        return f"{folder.again} {off} --set pack_tokens={less}"
    if less >= _SHORTEST:
        return f"a new run with shorter rows, {off} --set max_length={less}".replace("  ", " ")
    smaller = "an adapter in place of all weights, or " if recipe.full else ""
    return f"free memory, or a new run with {smaller}a smaller model, or {_SHARDS}"


def _tokens(lengths: Sequence[int], steps: Sequence[Step]) -> tuple[int, int]:
    """Of the longest row and of the largest pass."""
    passes = [pack for step in steps for share in step.shares for pack in share if pack]
    longest = max(lengths[row] for pack in passes for row in pack)
    return longest, max(sum(lengths[row] for row in pack) for pack in passes)


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
    longest, largest = _tokens(lengths, steps)
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
