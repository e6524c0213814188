"""What the processor of this machine computes fast, as far as engines choose by it. No torch."""

from pathlib import Path

_BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


def multiplies_bfloat16(described: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether it has instructions for bf16; without them a product is several times slower."""
    flags = described.read_text() if described.exists() else ""
    return not _BFLOAT16.isdisjoint(flags.split())
