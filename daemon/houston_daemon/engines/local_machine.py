"""What engines need of this machine: the cache folder with its lock, and whether bf16 is fast here.

Two processes that fill the same place in the cache wait for each other. It does not know what is
stored there, and imports no torch.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import platformdirs

NARROWEST_BFLOAT16 = 512
"""Width of a model below which fp32 is the faster kind. On a Xeon with avx512_bf16 a Llama takes
1.4 to 1.6 times as long in bf16 when it is 192 wide, and 1.3 to 1.6 times at 320; on an EPYC
SmolLM2 (576) takes less than half."""
_BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


def has_fast_bfloat16(described: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether this processor has bf16 instructions; without them a product is several times
    slower."""
    flags = described.read_text() if described.exists() else ""
    return not _BFLOAT16_FLAGS.isdisjoint(flags.split())


def is_faster_in_bfloat16(config: Any, gpu: bool = False) -> bool:
    """Whether a model runs faster in bf16 than in fp32, on this processor or on a GPU that
    multiplies bf16. config: the model's, as transformers reads it."""
    width = getattr(config.get_text_config(), "hidden_size", NARROWEST_BFLOAT16)
    return bool(width >= NARROWEST_BFLOAT16) and (gpu or has_fast_bfloat16())


def cache_folder() -> Path:
    """Return the cache: `HOUSTON_CACHE` when set, else the user's own cache folder."""
    override = os.environ.get("HOUSTON_CACHE")
    return Path(override) if override else Path(platformdirs.user_cache_path("houston"))


@contextmanager
def exclusive_lock(target: Path) -> Iterator[None]:
    """Hold the lock that belongs to `target`; wait for whoever else makes the same thing.

    The lock file stays: removing it would let a third process lock a file that nobody else sees.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(target.name + ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
