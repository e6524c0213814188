"""A recorder in a process of its own, to be killed: `python recorder_process.py HOME`.

Says one JSON line when it is ready: the lease of every rollout that can run. Then it answers each
line on stdin (a rollout's id) with a new lease, and ends when stdin does.
"""

import json
import sys
from pathlib import Path

from houston_daemon.recorder.recorder_thread import Recorder
from houston_shared.config import Configuration
from houston_shared.home import Home


def main() -> None:
    recorder = Recorder(Home(Path(sys.argv[1])), Configuration(), lambda event: None)
    recorder.start()
    leases = {rollout: recorder.assign(rollout).lease for rollout in recorder.runnable()}
    print(json.dumps(leases), flush=True)
    for line in sys.stdin:
        print(json.dumps(recorder.assign(line.strip()).lease), flush=True)
    recorder.stop()


if __name__ == "__main__":
    main()
