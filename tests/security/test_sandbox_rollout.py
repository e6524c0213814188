"""A rollout within its limits: what the agent is told, what a crash leaves, what an end removes."""

import json
from pathlib import Path
from typing import Any

from tests.support.station import Station

SANDBOX = """
[sandbox]
memory_mb = 250
processes = 120
"""
HOG = "python3 -c \"x = b'1' * (600 << 20); print(len(x))\""
REACH = (
    "for i in $(seq 50); do (exec 3<>/dev/tcp/127.0.0.1/8123) && break; sleep 0.1; done; echo $?"
)


def call(command: str, session: str = "main", **more: Any) -> dict[str, Any]:
    arguments = {"command": command, "session_id": session, **more}
    return {"thought": "", "calls": [{"name": "run_command", "arguments": arguments}], "delay": 0.2}


def test_the_agent_hears_of_a_limit_and_the_rollout_goes_on(station: Station) -> None:
    file = station.task()
    file.write_text(file.read_text().replace('sandbox = "bubblewrap"\n', "") + SANDBOX)
    steps = [
        call("python3 -m http.server 8123 >/dev/null 2>&1", "server", wait_for_completion=False),
        call(HOG),
        call("echo still here"),
        {"thought": "", "calls": [], "delay": 4},
        call(REACH),
    ]
    station.start()
    (rollout,) = station.rollout(file, station.script(steps))
    station.until(lambda: station.closed(rollout) >= 3)
    (status,) = station.json("daemon", "status")
    assert status["limits"] in ("cgroup2", "cgroup1", "watchdog")
    assert station.show(rollout)["limited_by"] == status["limits"]
    note = station.host_root / "limits" / f"{rollout}.json"
    doors = [Path(f, "cgroup.procs") for f in json.loads(note.read_bytes())["folders"].values()]
    before = [set(door.read_text().split()) for door in doors]
    station.kill_daemon()
    station.start()
    assert station.ended(rollout)["state"] == "finished"
    seen = [step["observation"] for step in station.steps(rollout)]
    assert "resource limit: memory" in seen[1]
    assert "still here" in seen[2] and "resource limit" not in "".join(seen[2:])
    assert "0" in seen[4].splitlines(), "a server in one session is reached from another"
    assert all(before), "sessions outlived the daemon, within their groups"
    station.until(lambda: not note.exists(), 20, "the rollout's groups are gone")
    assert not any(door.exists() for door in doors)
