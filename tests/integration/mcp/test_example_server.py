"""The example of the SDK's own description, as a server of a rollout: from the command line."""

import json
import re
from importlib.metadata import metadata
from pathlib import Path

import mcp

from houston_daemon.environments import local_host_setup
from tests.support.station import Station

DESCRIPTION = metadata("mcp").json["description"]
EXAMPLE = re.findall(r"```python\n(.*?)```", str(DESCRIPTION), re.DOTALL)[0]
PACKAGES = str(Path(mcp.__file__).parents[1])


def test_a_rollout_of_the_example(tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text(f'{EXAMPLE}\n\nmcp.run("stdio")\n')
    folders = [str(path) for path in local_host_setup.interpreter_paths(server, PACKAGES)]
    (tmp_path / "task.toml").write_text(
        'name = "demo"\ninstructions = "Add."\nenvironment = "mcp"\n'
        f"[sandbox]\nread = {json.dumps(folders)}\n"
        f"[mcp.servers.demo]\ncommand = {json.dumps(local_host_setup.PYTHON)}\n"
        f"args = [{json.dumps(str(server))}]\nenv = {{ PYTHONPATH = {json.dumps(PACKAGES)} }}\n"
    )
    station = Station(tmp_path)
    try:
        station.start()
        call = {"name": "add", "arguments": {"a": 1, "b": 2}}
        (rollout,) = station.rollout(
            tmp_path / "task.toml", station.script([{"thought": "t", "calls": [call]}])
        )
        assert station.ended(rollout)["state"] == "finished", station.log()
        assert station.steps(rollout)[0]["observation"].startswith("3")
    finally:
        station.clear()
