"""What a call of the `python` tool costs: in the sandbox and without, beside a bare `python3 -c`.

Median milliseconds of one call at a time, for code that does nothing, and for code that imports
numpy and sympy. Bare is the same interpreter started by `subprocess` with the same code.

    python bench/python_tool.py [--repeat 15]
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

from houston_daemon.environments.python.python_tool import PythonTool
from houston_daemon.hosts.local_host import LocalHost
from houston_shared.task_tables import PythonToolSettings

CODE = {"nothing": "1", "numpy": "import numpy", "sympy": "import sympy"}


async def tool_ms(root: Path, kind: Literal["bubblewrap", "none"], repeat: int) -> dict[str, float]:
    """Median duration of a call for each piece of code."""
    host = LocalHost(root, f"bench-{kind}", sandbox=kind, network=False, hidden=(root,))
    await host.prepare(None)
    tool, found = PythonTool(host, PythonToolSettings()), {}
    for name, code in CODE.items():
        times = []
        for _ in range(repeat):
            begun = time.perf_counter()
            assert (await tool.run(code)).success
            times.append(time.perf_counter() - begun)
        found[name] = round(statistics.median(times) * 1000, 1)
    await host.destroy_terminals()
    await host.close()
    return found


def bare_ms(repeat: int) -> dict[str, float]:
    """The same for `python3 -c`."""
    found = {}
    for name, code in CODE.items():
        times = []
        for _ in range(repeat):
            begun = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times.append(time.perf_counter() - begun)
        found[name] = round(statistics.median(times) * 1000, 1)
    return found


async def main() -> None:
    """Measure, print, keep as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=15)
    repeat = parser.parse_args().repeat
    with tempfile.TemporaryDirectory() as folder:
        report = {
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
            "repeat": repeat,
            "ms_a_call": {
                "bubblewrap": await tool_ms(Path(folder), "bubblewrap", repeat),
                "no sandbox": await tool_ms(Path(folder), "none", repeat),
                "bare": bare_ms(repeat),
            },
        }
    print(json.dumps(report, indent=2))
    (Path(__file__).parent / "results" / "python_tool.json").write_text(
        json.dumps(report, indent=2) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    asyncio.run(main())
