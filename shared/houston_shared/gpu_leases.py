"""The ledger of GPUs in the home: who holds which GPU, and who waits for one.

The daemon writes it; commands read it. Without a ledger no GPU is leased. The daemon decides who
gets a GPU.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from houston_shared.atomic_file import read_json_file
from houston_shared.home import Home


class GpuLease(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU, for one holder."""

    host: str
    gpu: int
    """Its number there, from 0."""
    holder: str
    """`rollout:R`, `engine:NAME` or `trainer:ID`."""
    shared: bool = False
    """Whether the holder asked to share it with others that asked the same."""
    since: str
    """UTC."""


class GpuLeases(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of the file."""

    leases: tuple[GpuLease, ...] = ()
    waiting: dict[str, str] = {}
    """Holder → what it waits for."""


def gpu_ledger_file(home: Home) -> Path:
    """Where it lies."""
    return home.path / "gpus.json"


def read_gpu_ledger(home: Home) -> GpuLeases:
    """The ledger as it was written last; empty where there is none, or it is damaged."""
    return read_json_file(gpu_ledger_file(home), GpuLeases) or GpuLeases()


def describe_gpu_leases(host: str, leases: list[GpuLease]) -> str:
    """The GPUs of one host that are leased, as a person reads them: `0 by rollout r1`."""
    return ", ".join(
        f"{lease.gpu} by {lease.holder.replace(':', ' ', 1)}{' (shared)' if lease.shared else ''}"
        for lease in sorted(leases, key=lambda lease: lease.gpu)
        if lease.host == host
    )


def visible_gpus_environment(numbers: Sequence[int]) -> dict[str, str]:
    """The environment that shows a process these GPUs and no others."""
    listed = ",".join(map(str, numbers))
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": listed}
