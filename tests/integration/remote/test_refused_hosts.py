"""Who may speak over TCP, and what those hear who may not."""

import asyncio
import json
import logging
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from houston_daemon.agent import remote_line
from houston_daemon.agent.recorder_client import IngestConnection
from houston_daemon.agent.remote_line import LineRefused
from houston_daemon.maintenance import home_backup
from houston_daemon.recorder.disk import host_keys
from houston_daemon.recorder.recorder_thread import Recorder
from houston_shared import command, wire
from houston_shared.config import Configuration, load_configuration
from houston_shared.config_sections import RecorderSettings
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.recorder_endpoint import RecorderEndpoint
from tests.integration.remote.conftest import RemoteRig
from tests.integration.remote.test_line_faults import SCRIPT, at_step, work


async def say_something(endpoint: RecorderEndpoint) -> wire.IngestReply:
    connection = IngestConnection(endpoint)
    body = wire.encode_message(wire.Hello(rollout="", lease=0, pid=1))
    try:
        return await asyncio.wait_for(connection.exchange(connection.next_number(), body), 30)
    finally:
        await connection.close()


def wrong_server_key(rig: RemoteRig) -> RecorderEndpoint:
    other = zmq.curve_keypair()[0].decode()
    return msgspec.structs.replace(rig.add_host(), server_key=other)


def no_key_of_ours(rig: RemoteRig) -> RecorderEndpoint:
    public, secret = (key.decode() for key in zmq.curve_keypair())
    return msgspec.structs.replace(rig.add_host(), public_key=public, secret_key=secret)


def removed(rig: RemoteRig) -> RecorderEndpoint:
    endpoint = rig.add_host()
    host_keys.remove_host(rig.home, "gpu2")
    return endpoint


def replaced(rig: RemoteRig) -> RecorderEndpoint:
    endpoint = rig.add_host()
    rig.add_host(replace=True)
    return endpoint


REFUSED = [
    pytest.param(
        wrong_server_key, "does not have the home's key", "refused in the handshake",
        id="the key of another home",
    ),
    pytest.param(no_key_of_ours, "refuses the key of this host", "unknown", id="an unknown key"),
    pytest.param(removed, "refuses the key of this host", "to no host", id="a removed host"),
    pytest.param(replaced, "refuses the key of this host", "to no host", id="an old key"),
]  # fmt: skip


@pytest.mark.parametrize(("made", "says", "logs"), REFUSED)
async def test_who_is_refused_hears_a_sentence_and_so_does_the_log(
    remote: RemoteRig,
    made: Any,
    says: str,
    logs: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote_line, "FAILED_HANDSHAKES", 3)
    with pytest.raises(LineRefused, match=says):
        await say_something(made(remote))
    remote.until(lambda: logs in caplog.text, 10, logs)


async def test_a_host_is_known_by_its_name(
    remote: RemoteRig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    reply = await say_something(remote.add_host("node-7"))
    assert isinstance(reply, wire.Refused) and reply.code == "UNKNOWN"
    assert "host node-7 connects from 127.0.0.1" in caplog.text


async def test_a_host_that_is_removed_while_it_works_leaves(remote: RemoteRig) -> None:
    endpoint = remote.add_host()
    rollout = remote.rollout(SCRIPT)
    working = asyncio.create_task(work(remote, endpoint, rollout))
    await at_step(remote, rollout, 2)
    host_keys.remove_host(remote.home, "gpu2")
    (stored,) = remote.query("SELECT count(*) FROM events WHERE part IS NOT NULL")
    with pytest.raises(LineRefused, match="host gpu2 was removed"):
        await asyncio.wait_for(working, 30)
    assert remote.state(rollout)[0] == "running", "it is another worker's, not failed"
    assert remote.query("SELECT count(*) FROM events WHERE part IS NOT NULL") == [stored]
    await work(remote, RecorderEndpoint(remote.home.socket("ingest")), rollout)
    assert remote.state(rollout)[0] == "finished"


async def test_a_removed_host_is_told_nothing_more(remote: RemoteRig) -> None:
    endpoint = remote.add_host()
    rollout = remote.rollout([{"thought": "t", "delay": 600, "calls": []}])
    lease = remote.recorder.assign(rollout).lease
    connection = IngestConnection(endpoint)
    pushed: list[wire.WorkerControl] = []
    connection.controls[""] = type("Heard", (), {"update": staticmethod(pushed.append)})()
    hello = wire.encode_message(wire.Hello(rollout=rollout, lease=lease, pid=1))
    await connection.exchange(connection.next_number(), hello)
    host_keys.remove_host(remote.home, "gpu2")
    await asyncio.to_thread(remote.ask, wire.Guide(id="a", rollout=rollout, text="word"))
    beat = wire.encode_message(wire.Heartbeat(rollout=rollout, lease=lease))
    reply = await connection.exchange(connection.next_number(), beat)
    assert isinstance(reply, wire.Refused) and reply.code == "REMOVED"
    assert not pushed
    await connection.close()


async def test_who_speaks_without_keys_is_not_heard(remote: RemoteRig) -> None:
    """Plain ZeroMQ, and bytes that are none: workers go on."""
    context = zmq.Context()
    plain = context.socket(zmq.DEALER)
    plain.connect(f"tcp://127.0.0.1:{remote.port}")
    plain.send_multipart([b"12345678", wire.encode_message(wire.Hello(rollout="", lease=0, pid=1))])
    with socket.create_connection(("127.0.0.1", remote.port)) as raw:
        raw.sendall(b"GET / HTTP/1.0\r\n\r\n" * 100)
        reply = await say_something(remote.add_host())
    assert isinstance(reply, wire.Refused)
    assert not plain.poll(200)
    context.destroy(linger=0)


def starts(home: Home, listen: str) -> None:
    recorder = Recorder(home, Configuration(recorder=RecorderSettings(listen=listen)), print)
    try:
        recorder.start()
    finally:
        recorder.stop()


def test_a_taken_port_is_said(remote: RemoteRig, tmp_path: Path) -> None:
    other = Home(tmp_path / "other")
    listen = remote.configuration.recorder.listen
    with pytest.raises(HoustonError, match=f"{listen} cannot be bound .Address already in use"):
        starts(other, listen)
    starts(other, "")


def test_an_address_of_another_machine_is_said(tmp_path: Path) -> None:
    with pytest.raises(HoustonError, match="cannot be bound"):
        starts(Home(tmp_path / "home"), "tcp://192.0.2.1:7450")


ADDRESSES = ["tcp://*:99999", "tcp://*:0", "tcp://node", "node:7450", "ipc:///tmp/x", "tcp://a b:1"]


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("key", ["listen", "address"])
def test_an_address_that_is_none_is_said(key: str, address: str, tmp_path: Path) -> None:
    (tmp_path / "houston.toml").write_text(f'[recorder]\n{key} = "{address}"\n')
    with pytest.raises(HoustonError, match=f"`recorder.{key}` = .* is not an address like tcp://"):
        load_configuration(str(tmp_path), environment={})


@pytest.mark.parametrize("text", ["{}", "\xff", '{"public_key": "a", "secret_key": "b"}'])
def test_keys_that_are_damaged_are_said_at_the_start(text: str, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.path.mkdir()
    home.host_keys.write_text(text)
    with pytest.raises(HoustonError, match="it is damaged"):
        starts(home, "tcp://127.0.0.1:7450")


def test_keys_leave_with_no_backup(remote: RemoteRig, tmp_path: Path) -> None:
    remote.add_host()
    secret = msgspec.json.decode(remote.home.host_keys.read_bytes())["secret_key"].encode()
    remote.recorder.stop()
    home_backup.make_backup(remote.home, tmp_path / "elsewhere")
    files = [file for file in (tmp_path / "elsewhere").rglob("*") if file.is_file()]
    assert files and not [file for file in files if secret in file.read_bytes()]


def houston(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, output, errors."""
    code = command.main(list(words))
    return (code, *capsys.readouterr())


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a home and its configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOUSTON_CONFIG", raising=False)
    monkeypatch.setenv("HOUSTON_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    toml = '[recorder]\nlisten = "tcp://127.0.0.1:7450"\naddress = "tcp://node1:7450"\n'
    (tmp_path / "home/houston.toml").write_text(toml)
    return tmp_path


SLIPS = [
    pytest.param(["add", "GPU 2"], 2, "not a valid host name", id="a name that is none"),
    pytest.param(["add", "known", "--out", "x"], 1, "has keys already", id="a host that is there"),
    pytest.param(["add", "x", "--out", "there"], 1, "already exists", id="a file that is there"),
    pytest.param(["add", "x", "--out", "no/x"], 1, "cannot be written", id="a folder that is not"),
    pytest.param(["remove", "knwon"], 66, "did you mean known?", id="no such host"),
    pytest.param(["check", "none"], 66, "cannot be read", id="no such file"),
    pytest.param(["check", "there"], 78, "is no endpoint file", id="another file"),
    pytest.param(["check", "odd"], 78, "is no endpoint file", id="keys that are none"),
]


@pytest.mark.parametrize(("words", "code", "says"), SLIPS)
def test_a_slip_is_answered(
    node: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, says: str
) -> None:
    assert houston(capsys, "host", "add", "known")[0] == 0
    keys = dict.fromkeys(("server_key", "public_key", "secret_key"), "\u00e4" * 40)
    (node / "odd").write_text(json.dumps({"address": "tcp://x:1", **keys}))
    (node / "there").write_text('{"address": "tcp://x:1"}')
    found, _, errors = houston(capsys, "host", *words)
    assert found == code and says in errors


def test_a_host_is_added_listed_and_removed(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert houston(capsys, "host", "add", "gpu2")[0] == 0
    file = node / "gpu2.endpoint.json"
    assert file.stat().st_mode & 0o777 == 0o600
    endpoint = json.loads(file.read_text())
    assert endpoint["address"] == "tcp://node1:7450"
    keys = node / "home/host-keys.json"
    assert keys.stat().st_mode & 0o777 == 0o600
    assert endpoint["secret_key"] not in keys.read_text(), "it is handed out, and kept nowhere"
    (line,) = houston(capsys, "host", "list", "--json")[1].splitlines()
    assert json.loads(line)["host"] == "gpu2"
    code, printed, _ = houston(capsys, "host", "add", "gpu3", "--out", "-")
    assert code == 0 and json.loads(printed)["server_key"] == endpoint["server_key"]
    assert houston(capsys, "host", "remove", "gpu2")[0] == 0
    assert houston(capsys, "host", "list")[1].startswith("gpu3 ")


def test_without_an_address_no_key_is_made(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (node / "home/houston.toml").write_text("")
    code, _, errors = houston(capsys, "host", "add", "gpu2")
    assert code == 78 and "[recorder] listen" in errors
    assert not (node / "gpu2.endpoint.json").exists()


def audited_hosts(rig: RemoteRig, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What `houston log --audit` says of hosts."""
    assert command.main(["--home", str(rig.home.path), "log", "--audit", "--json"]) == 0
    lines = map(json.loads, capsys.readouterr().out.splitlines())
    return [line["text"] for line in lines if line["did"] == "hosts"]


def test_who_was_let_in_and_removed_is_in_the_audit(
    remote: RemoteRig, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = [
        ("host gpu2 added", lambda: remote.add_host("gpu2")),
        ("host gpu2 given new keys", lambda: remote.add_host("gpu2", replace=True)),
        ("host gpu2 removed", lambda: host_keys.remove_host(remote.home, "gpu2")),
    ]
    for number, (words, act) in enumerate(wanted, 1):
        act()
        remote.until(lambda n=number: len(audited_hosts(remote, capsys)) == n, 10, words)
        assert audited_hosts(remote, capsys)[-1] == words
    remote.restart()
    remote.add_host("gpu3")
    remote.until(lambda: len(audited_hosts(remote, capsys)) == 4, 10, "once more")
    assert audited_hosts(remote, capsys)[-1] == "host gpu3 added"
