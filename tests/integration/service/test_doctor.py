"""The doctor: a line a check, what to do next, and exit code 1 when something required fails."""

import socket
from pathlib import Path
from typing import Any

from tests.support.station import Station


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


def test_engines_that_answer_and_engines_that_do_not(station: Station) -> None:
    station.home.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        ports = server.getsockname()[1], closed.getsockname()[1]
        (station.home / "houston.toml").write_text(
            "".join(
                f'[engines.{name}]\nkind = "token"\nurl = "http://127.0.0.1:{port}/v1"\n'
                for name, port in zip(("near", "far"), ports, strict=True)
            )
        )
        found = examined(station, None)
    assert found["engine near"]["state"] == "ok"
    assert found["engine far"]["state"] == "warn"
    assert str(ports[1]) in found["engine far"]["found"]
