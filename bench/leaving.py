"""How long a daemon takes to end, from SIGTERM or `daemon stop`, whatever it is in the middle of.

    python bench/leaving.py

Writes bench/results/leaving.json: seconds for each scenario of tests/support/busy_daemons.py, with
the default configuration, and what is promised.
"""

import json
import os
import platform
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.busy_daemons import HUNG, LEAVING, Scenario, frozen
from tests.support.station import Station, alive

RESULT = Path(__file__).parent / "results" / "leaving.json"
AIMS = {"SIGTERM": 10.0, "second SIGTERM": 1.0, "stop": 10.0}


def measure(scenario: Scenario, how: str) -> float:
    """Seconds until the daemon's process is gone."""
    with tempfile.TemporaryDirectory(prefix="leaving-") as folder, ExitStack() as later:
        station = Station(Path(folder))
        later.callback(station.clear)
        scenario(station, later)
        pid = json.loads((station.home / "daemon.lock").read_text())["pid"]
        began = time.monotonic()
        if how == "stop":
            station.run("daemon", "stop", code=None)
        else:
            os.kill(pid, signal.SIGTERM)
        if how == "second SIGTERM":
            time.sleep(0.2)
            began = time.monotonic()
            os.kill(pid, signal.SIGTERM)
        while alive(pid):
            time.sleep(0.01)
        return round(time.monotonic() - began, 2)


def main() -> None:
    """Measure every scenario and write the result."""
    named = {**LEAVING, "a frozen daemon": frozen}
    seconds: dict[str, dict[str, float]] = {how: {} for how in AIMS}
    for name, scenario in named.items():
        for how in AIMS:
            if how != "stop" and name == "a frozen daemon":
                continue
            seconds[how][name] = measure(scenario, how)
            print(f"{how:<16} {name:<46} {seconds[how][name]:6.2f} s", flush=True)
    result = {
        "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
        "load": os.getloadavg()[0],
        "aims_seconds": AIMS,
        "ended_by_force": sorted(HUNG),
        "seconds": seconds,
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
