"""Plays the scripted research on two real machines: this one, and one behind an sshd.

`python -m tests.support.research.playing` does it and keeps the recording as the sample.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from houston_daemon.demo import rollout_recording
from houston_shared.home import Home
from tests.support.research.plan import script
from tests.support.research.runs import TASK
from tests.support.sshd import Sshd
from tests.support.station import Station
from tests.support.terminals import end_terminals

SAMPLE = TASK.with_suffix(".jsonl.zst")
SECOND = "gpu"
_NOTE = "# Where a second machine is declared in houston.toml: "


@contextmanager
def two_machines(folder: Path) -> Iterator[Station]:
    """A station whose configuration names a second machine; both are cleared at the end."""
    sshd = Sshd(folder / "s")
    station = Station(folder)
    station.home.mkdir(parents=True)
    (station.home / "houston.toml").write_text(sshd.table(SECOND))
    try:
        sshd.start()
        station.start()
        yield station
    finally:
        station.clear()
        end_terminals(Path(sshd.host.host_root))
        sshd.close()


def begin(station: Station) -> str:
    """Start the rollout on a copy of the task that names both machines; its id."""
    copied = station.folder / "filter-reviews"
    shutil.copytree(TASK, copied)
    file = copied / "task.toml"
    text = file.read_text()
    assert _NOTE in text
    file.write_text(text.replace(_NOTE, ""))
    (rollout,) = station.rollout(file, station.script(script(SECOND).steps, "research"))
    return rollout


def main() -> None:
    """Play it and keep it."""
    with (
        tempfile.TemporaryDirectory(prefix="research-") as folder,
        two_machines(Path(folder)) as station,
    ):
        rollout = begin(station)
        record = station.ended(rollout, 300)
        if record["state"] != "finished" or record["best_score"] != 90:
            sys.exit(f"not kept: {record}")
        rollout_recording.write_recording(Home(station.home), rollout, SAMPLE)
        print(f"{SAMPLE}: {SAMPLE.stat().st_size} bytes, {record['active_seconds']} s active")


if __name__ == "__main__":
    main()
