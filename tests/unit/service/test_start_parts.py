"""Parts of a start: readiness, file systems, systemd, what a rollout is started with."""

import os
import socket
from pathlib import Path

import pytest

from houston_daemon.recorder.people.operate import without_secrets
from houston_daemon.service import filesystem, ready
from houston_daemon.service.notify import notify
from houston_daemon.service.rollouts import hidden, specs
from houston_shared.config import Configuration, Daemon, Loaded, fingerprint, load
from houston_shared.config_engine import Engine
from houston_shared.errors import ConfigurationError, ExitCode
from houston_shared.home import Home
from houston_shared.lock import Owner
from houston_shared.secret_values import VARIABLE, install, redactor
from houston_shared.task import load_task


@pytest.mark.parametrize(
    "report",
    [
        ready.Report(ready=True),
        ready.Report(running=Owner(12, "now", "abc", "houston.toml")),
        ready.failure(ConfigurationError("Wrong key.", "Nothing was started.", "Mend it.")),
    ],
)
def test_a_report_arrives_whole(report: ready.Report) -> None:
    reading, writing = os.pipe()
    ready.say(writing, report)
    assert ready.hear(reading, 5) == report
    os.close(reading)


def test_a_failure_keeps_its_sentence_and_code() -> None:
    problem = ready.failure(ConfigurationError("Wrong key.", "Effect.", "Next.")).problem()
    assert (problem.cause, problem.effect, problem.next) == ("Wrong key.", "Effect.", "Next.")
    assert problem.code == ExitCode.CONFIGURATION


def test_a_daemon_that_dies_is_heard_and_one_that_hangs_is_not_waited_for() -> None:
    reading, writing = os.pipe()
    with pytest.raises(TimeoutError):
        ready.hear(reading, 0.05)
    os.close(writing)
    assert ready.hear(reading, 5) is None
    os.close(reading)


def test_a_starter_that_has_gone_is_no_problem() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ready.say(writing, ready.Report(ready=True))
    ready.say(None, ready.Report(ready=True))


MOUNTS = """\
21 1 0:20 / / rw - ext4 /dev/vda rw
22 21 0:21 / /data rw shared:1 - nfs4 server:/data rw
23 22 0:22 / /data/scratch rw - xfs /dev/vdb rw
24 21 0:23 / /with\\040space rw - cifs //server rw
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", "ext4"),
        ("/data/home/x", "nfs4"),
        ("/data/scratch/home", "xfs"),
        ("/database", "ext4"),
        ("/with space/home", "cifs"),
    ],
)
def test_the_file_system_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, expected: str
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    monkeypatch.setattr(filesystem, "_existing", lambda path: path)
    assert filesystem.kind(Path(path), mounts) == expected


def test_a_home_on_a_network_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem, "kind", lambda path: "nfs4")
    with pytest.raises(ConfigurationError, match="nfs4"):
        filesystem.refuse_network(Home(tmp_path))


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool) -> None:
    address = f"@houston-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + address[1:] if abstract else address)
        systemd.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        notify("READY=1")
        assert systemd.recv(100) == b"READY=1"
    notify("STOPPING=1")  # nobody listens any more: said in the log, no error


def test_the_fingerprint_tells_configurations_apart() -> None:
    one, same = Configuration(), Configuration(daemon=Daemon(max_rollouts=64))
    assert fingerprint(one) == fingerprint(same)
    assert fingerprint(one) != fingerprint(Configuration(daemon=Daemon(max_rollouts=63)))


def test_what_a_rollout_is_started_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAR_KEY", "sk-very-secret")
    far = Engine(kind="chat", url="http://127.0.0.1:1/v1", api_key_env="FAR_KEY")
    loaded = Loaded(Configuration(engines={"far": far}), Home(tmp_path / "home"), "houston.toml")
    (tmp_path / "task.toml").write_text('name = "t"\ninstructions = "Do it."\n')
    task = load_task(tmp_path)
    first, second = specs(loaded, task, "far", 2, seed=40)
    assert (first.seed, second.seed) == (40, 41)
    assert first.group == second.group != ""
    assert first.engine_settings["api_key_env"] == "FAR_KEY"
    assert "sk-very-secret" not in repr(first), "the key itself is never stored"
    places = hidden(loaded)
    assert {str(tmp_path / "home"), str(loaded.home.run), str(Path.home() / ".ssh")} <= set(places)
    assert (
        specs(loaded, task, "far", 1, None)[0].seed != specs(loaded, task, "far", 1, None)[0].seed
    )


@pytest.mark.parametrize("kind", ["script", "recorded"])
def test_a_file_engine_is_stored_with_its_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Workers run in the daemon's folder: what was meant is where `rollout start` was said."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task.toml").write_text('name = "t"\ninstructions = "Do it."\n')
    loaded = Loaded(Configuration(), Home(tmp_path / "home"), "defaults")
    (spec,) = specs(loaded, load_task(tmp_path), f"{kind}:played.jsonl", 1, None)
    assert spec.engine == f"{kind}:{tmp_path}/played.jsonl"
    assert spec.engine_settings["path"] == f"{tmp_path}/played.jsonl"


def test_a_named_file_engine_lies_beside_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "houston.toml").write_text('[engines.x]\nkind = "script"\npath = "x.jsonl"\n')
    (tmp_path / "task.toml").write_text('name = "t"\ninstructions = "Do it."\n')
    (spec,) = specs(load(str(tmp_path), environment={}), load_task(tmp_path), "x", 1, None)
    assert spec.engine == "x"
    assert spec.engine_settings["path"] == f"{tmp_path}/x.jsonl"


def test_tools_are_stored_without_their_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker gets `[tools]` as it is at the start: paths that hold, names of keys, no key."""
    monkeypatch.setenv("FIND_IT", "sk-very-secret")
    (tmp_path / "houston.toml").write_text(
        '[tools.search]\nprovider = "serper"\napi_key_env = "FIND_IT"\ncorpus = "papers"\n'
        'url = "http://127.0.0.1:1/?key=sk-very-secret"\n[tools.browse]\nmegabytes = 2\n'
    )
    (tmp_path / "task.toml").write_text('name = "t"\ninstructions = "Do it."\n')
    loaded = load(str(tmp_path), environment={})
    monkeypatch.setenv(VARIABLE, "")  # so that what follows is undone
    install(loaded.config)
    (spec,) = specs(loaded, load_task(tmp_path), "script:x", 1, None)
    stored = without_secrets(spec)
    assert stored.tool_settings["search"]["api_key_env"] == "FIND_IT"
    assert stored.tool_settings["search"]["corpus"] == f"{tmp_path}/papers"
    assert stored.tool_settings["browse"]["megabytes"] == 2
    assert "sk-very-secret" not in repr(stored)
    redactor.cache_clear()
