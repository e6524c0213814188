"""What the loss of a machine costs where `[artifacts]` names a store, and how long a restore takes.

    python bench/store_copies.py

Writes bench/results/store_copies.json. Two rollouts on a real daemon take steps of a tenth of a
second and more, and a server of S3 (moto's, on this machine) takes the copies. At random moments
another client looks what the store holds: `lag` is the age of the oldest event that it does not, in
seconds, 0 where it has all; it is what would be lost then. `restore` is `houston backup --restore`
into an empty home, checked whole.
"""

import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from houston_daemon.artifacts import journal_segments
from houston_daemon.artifacts.artifact_store import ArtifactStore
from tests.support import s3_server
from tests.support.station import Station

RESULT = Path(__file__).parent / "results" / "store_copies.json"
LOOKS = 30
STEP = {"command": "head -c 2000 /dev/urandom | base64 >> log.txt; tail -n 5 log.txt"}


def age_of_oldest_missing(station: Station, store: ArtifactStore) -> float:
    """Seconds since the first event that the store does not have was committed."""
    now = time.time()
    held = max((segment.last for segment in journal_segments.list_segments(store)), default=0)
    (at,) = station.query("SELECT min(at) FROM events WHERE seq > ?", held)[0]
    return max(0.0, now - at / 1e6) if at else 0.0


def measure(url: str, line: s3_server.Line, every_seconds: float) -> dict[str, Any]:
    """Lags and a restore with this setting."""
    store = ArtifactStore(url)
    with tempfile.TemporaryDirectory(prefix="store-copies-") as folder:
        station = Station(Path(folder))
        station.environment |= {
            **s3_server.environment(line),
            "HOUSTON__ARTIFACTS__URL": url,
            "HOUSTON__ARTIFACTS__EVERY_SECONDS": str(every_seconds),
        }
        call = {"name": "run_command", "arguments": STEP}
        engine = station.script([{"thought": "w", "calls": [call], "delay": 0.1}] * 5_000)
        station.start()
        rollouts = station.rollout(station.task(sandbox="none", budget="steps = 5000"), engine, n=2)
        station.until(lambda: len(journal_segments.list_segments(store)) > 3, 120)
        began, steps = time.monotonic(), sum(map(station.closed, rollouts))
        lags = []
        for _ in range(LOOKS):
            time.sleep(random.uniform(0.2, 2 * every_seconds))
            lags.append(age_of_oldest_missing(station, store))
        rate = (sum(map(station.closed, rollouts)) - steps) / (time.monotonic() - began)
        for rollout in rollouts:
            station.run("rollout", "cancel", rollout, code=None)  # it may be over
        station.stop()
        began = time.monotonic()
        new = Station(Path(folder) / "new")
        new.folder.mkdir()
        new.environment |= s3_server.environment(line)
        new.run("backup", "--restore", url)
        seconds = time.monotonic() - began
        return {
            "every_seconds": every_seconds,
            "steps_per_second": round(rate, 1),
            "lag_median": round(statistics.median(lags), 2),
            "lag_worst": round(max(lags), 2),
            "looks": LOOKS,
            "restore_seconds": round(seconds, 1),
            "restore_events": new.query("SELECT count(*) FROM events")[0][0],
            "objects": len(store.list("")),
            "megabytes": round(sum(store.list("").values()) / 1e6, 2),
        }


def main() -> None:
    """Measure with two settings and write the result."""
    with s3_server.served() as line:
        s3_server.make_bucket(line, "bench")
        os.environ |= s3_server.environment(line)
        found = []
        for every_seconds in (1.0, 5.0):
            found.append(measure(f"s3://bench/{every_seconds}", line, every_seconds))
            print(json.dumps(found[-1]), flush=True)
    machine = {"cores": os.cpu_count(), "python": platform.python_version()}
    result = {"machine": machine, "load": os.getloadavg()[0], "measured": found}
    RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
