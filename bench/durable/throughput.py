"""Acked messages a second at 64 workers, against raw group commit: one run of bench/recorder."""

import argparse
from pathlib import Path
from typing import Any

from bench.recorder import measure as recorder
from bench.recorder import shapes

SHAPE = "2 KB"


def measure(folder: Path) -> dict[str, Any]:
    """Aim: at least 10,000 a second, ratio at least 0.35, ack p99 at most 15 ms."""
    del folder  # bench/recorder makes its own, on the same disk
    arguments = argparse.Namespace(clients=64, seconds=5.0, runs=3)
    found = recorder(SHAPE, shapes()[SHAPE], arguments)
    rate, ratio, p99 = found["messages_per_second"], found["ratio"], found["ack_p99_ms"]
    return {
        "workers": arguments.clients,
        **found,
        "aim": "at least 10,000 messages/s, ratio at least 0.35, ack p99 at most 15 ms",
        "met": rate >= 10_000 and ratio >= 0.35 and p99 <= 15,
    }
