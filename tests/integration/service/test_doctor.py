"""The doctor: a line a check, what to do next, and exit code 1 when something required fails."""

import socket
from pathlib import Path
from typing import Any

from tests.integration.agent.endpoint import Endpoint, says
from tests.support.station import Station
from tests.support.token_id_server import IdServer, byte_tokenizer


def examined(station: Station, code: int | None) -> dict[str, Any]:
    import json

    done = station.run("doctor", "--json", code=code)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {row["check"]: row for row in rows}


def test_this_machine(station: Station) -> None:
    found = examined(station, 0)
    required = {"python", "sqlite", "home", "space", "clock", "tmux", "git", "sandbox"}
    assert required <= set(found)
    assert {found[name]["state"] for name in required} <= {"ok", "warn"}
    assert all(row["next"] for row in found.values() if row["state"] != "ok")
    assert not station.home.exists(), "looking makes nothing"
    shown = station.run("doctor").stdout
    assert "bubblewrap started a process" in shown


def test_without_its_programs(station: Station, tmp_path: Path) -> None:
    station.environment["PATH"] = str(tmp_path)
    found = examined(station, 1)
    for name in ("tmux", "git", "sandbox"):
        assert found[name]["state"] == "fail"
        assert found[name]["next"]


def test_a_home_that_cannot_be_written(station: Station) -> None:
    station.environment["HOUSTON_HOME"] = "/proc/nowhere"
    found = examined(station, 1)
    assert found["home"]["state"] == "fail"
    assert "--home" in found["home"]["next"]


def test_engines_at_urls(station: Station, tmp_path: Path) -> None:
    """As `rollout start` looks at them; one that nobody has started is no fault of the machine."""
    theirs, other = (
        byte_tokenizer(tmp_path / name, first=mark)
        for name, mark in (("theirs", "<|im_end|>"), ("other", "<|im_start|>"))
    )
    server, chat = IdServer(theirs), Endpoint(lambda body: says("x"))
    station.home.mkdir()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        far = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        (station.home / "houston.toml").write_text(
            "".join(
                f'[engines.{name}]\nkind = "{kind}"\nurl = "{url}"\nmodel = "some-model"\n{more}\n'
                for name, kind, url, more in (
                    ("near", "token", server.endpoint.url, f'tokenizer = "{theirs}"'),
                    ("wrong", "token", server.endpoint.url, f'tokenizer = "{other}"'),
                    ("chat", "chat", chat.url, ""),
                    ("keyed", "chat", chat.url, 'api_key_env = "NO_SUCH_KEY"'),
                    ("far", "chat", far, ""),
                )
            )
        )
        found = examined(station, 1)
    chat.close()
    server.endpoint.close()
    states = {name: found[f"engine {name}"]["state"] for name in ("near", "wrong", "chat", "far")}
    assert states == {"near": "ok", "wrong": "fail", "chat": "ok", "far": "warn"}
    assert "is not the server's" in found["engine wrong"]["found"]
    assert "houston engine check wrong" in found["engine wrong"]["next"]
    assert found["engine keyed"]["state"] == "warn" and "key" in found["engine keyed"]["found"]
    assert far.split("/")[2] in found["engine far"]["found"]
