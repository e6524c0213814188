"""Where a figure was measured: cores, versions, load, and what the disk takes for a sync."""

import os
import platform
import sqlite3
import time
from pathlib import Path
from typing import Any

import zmq

SYNCS = 300


def machine(folder: Path) -> dict[str, Any]:
    """What belongs beside every figure. folder: on the disk that is measured."""
    return {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        "versions": {
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            "pyzmq": zmq.__version__,
        },
        "load": round(os.getloadavg()[0], 1),
        "raw_append_and_fdatasync_ms": spread(syncs(folder)),
    }


def device_name(device: str) -> str:
    """What `cuda` is here, or `cpu`."""
    import torch

    return torch.cuda.get_device_name() if device == "cuda" else "cpu"


def syncs(folder: Path) -> list[float]:
    """Milliseconds of appending 4 KB and making them durable, again and again."""
    path, times = folder / "syncs", []
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for _ in range(SYNCS):
        began = time.perf_counter()
        os.write(descriptor, bytes(4096))
        os.fdatasync(descriptor)
        times.append(1e3 * (time.perf_counter() - began))
    os.close(descriptor)
    path.unlink()
    return times


def spread(times: list[float]) -> dict[str, float]:
    """Median, 99th percentile and most of some milliseconds."""
    ordered = sorted(times)
    last = len(ordered) - 1
    return {
        "count": len(ordered),
        "p50": round(ordered[last // 2], 2),
        "p99": round(ordered[round(0.99 * last)], 2),
        "most": round(ordered[-1], 2),
    }
