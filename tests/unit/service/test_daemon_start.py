"""Parts of a start: readiness, file systems, systemd, what a rollout is started with."""

import os
import socket
from pathlib import Path

import pytest

from houston_daemon.recorder.handlers.rollout_handlers import redact_spec
from houston_daemon.service import daemon_control, home_setup
from houston_daemon.service.rollout_start_checks import build_rollout_specs
from houston_daemon.service.systemd_service import notify_systemd
from houston_shared.config import (
    Configuration,
    LoadedConfiguration,
    fingerprint,
    load_configuration,
)
from houston_shared.config_sections import DaemonSettings
from houston_shared.engine_settings import EngineSettings
from houston_shared.errors import ConfigurationError, ExitCode
from houston_shared.home import Home
from houston_shared.home_lock import HomeOwner
from houston_shared.secret_redaction import SECRETS_VARIABLE, install_secrets, process_redactor
from houston_shared.task import load_task


@pytest.mark.parametrize(
    "report",
    [
        daemon_control.ReadinessReport(ready=True),
        daemon_control.ReadinessReport(running=HomeOwner(12, "now", "abc", "houston.toml")),
        daemon_control.failure_report(
            ConfigurationError("Wrong key.", "Nothing was started.", "Mend it.")
        ),
    ],
)
def test_a_report_arrives_whole(report: daemon_control.ReadinessReport) -> None:
    reading, writing = os.pipe()
    daemon_control.send_readiness(writing, report)
    assert daemon_control.wait_for_readiness(reading, 5) == report
    os.close(reading)


def test_a_failure_keeps_its_sentence_and_code() -> None:
    problem = daemon_control.failure_report(
        ConfigurationError("Wrong key.", "Effect.", "Next.")
    ).problem()
    assert (problem.cause, problem.effect, problem.next) == ("Wrong key.", "Effect.", "Next.")
    assert problem.code == ExitCode.CONFIGURATION


def test_a_daemon_that_dies_is_heard_and_one_that_hangs_is_not_waited_for() -> None:
    reading, writing = os.pipe()
    with pytest.raises(TimeoutError):
        daemon_control.wait_for_readiness(reading, 0.05)
    os.close(writing)
    assert daemon_control.wait_for_readiness(reading, 5) is None
    os.close(reading)


def test_a_starter_that_has_gone_is_no_problem() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    daemon_control.send_readiness(writing, daemon_control.ReadinessReport(ready=True))
    daemon_control.send_readiness(None, daemon_control.ReadinessReport(ready=True))


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
    monkeypatch.setattr(home_setup, "_nearest_existing", lambda path: path)
    assert home_setup.filesystem_type(Path(path), mounts) == expected


def test_a_home_on_a_network_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home_setup, "filesystem_type", lambda path: "nfs4")
    with pytest.raises(ConfigurationError, match="nfs4"):
        home_setup.refuse_network_home(Home(tmp_path))


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool) -> None:
    address = f"@houston-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + address[1:] if abstract else address)
        systemd.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        notify_systemd("READY=1")
        assert systemd.recv(100) == b"READY=1"
    notify_systemd("STOPPING=1")  # nobody listens any more: said in the log, no error


def test_the_fingerprint_tells_configurations_apart() -> None:
    one, same = Configuration(), Configuration(daemon=DaemonSettings(max_rollouts=64))
    assert fingerprint(one) == fingerprint(same)
    assert fingerprint(one) != fingerprint(Configuration(daemon=DaemonSettings(max_rollouts=63)))


def test_what_a_rollout_is_started_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAR_KEY", "sk-very-secret")
    far = EngineSettings(kind="chat", url="http://127.0.0.1:1/v1", api_key_env="FAR_KEY")
    loaded = LoadedConfiguration(
        Configuration(engines={"far": far}), Home(tmp_path / "home"), "houston.toml"
    )
    (tmp_path / "task.toml").write_text('name = "t"\ninstructions = "Do it."\n')
    task = load_task(tmp_path)
    first, second = build_rollout_specs(loaded, task, "far", 2, seed=40)
    assert (first.seed, second.seed) == (40, 41)
    assert first.group == second.group != ""
    assert first.engine_settings["api_key_env"] == "FAR_KEY"
    assert "sk-very-secret" not in repr(first), "the key itself is never stored"
    places = first.hidden
    assert {str(tmp_path / "home"), str(loaded.home.run), str(Path.home() / ".ssh")} <= set(places)
    assert (
        build_rollout_specs(loaded, task, "far", 1, None)[0].seed
        != build_rollout_specs(loaded, task, "far", 1, None)[0].seed
    )


@pytest.mark.parametrize("kind", ["script", "recorded"])
def test_a_file_engine_is_stored_with_its_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Workers run in the daemon's folder: what was meant is where `rollout start` was said."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task.toml").write_text('name = "t"\ninstructions = "Do it."\n')
    loaded = LoadedConfiguration(Configuration(), Home(tmp_path / "home"), "defaults")
    (spec,) = build_rollout_specs(loaded, load_task(tmp_path), f"{kind}:played.jsonl", 1, None)
    assert spec.engine == f"{kind}:{tmp_path}/played.jsonl"
    assert spec.engine_settings["path"] == f"{tmp_path}/played.jsonl"


def test_a_named_file_engine_lies_beside_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "houston.toml").write_text('[engines.x]\nkind = "script"\npath = "x.jsonl"\n')
    (tmp_path / "task.toml").write_text('name = "t"\ninstructions = "Do it."\n')
    (spec,) = build_rollout_specs(
        load_configuration(str(tmp_path), environment={}), load_task(tmp_path), "x", 1, None
    )
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
    loaded = load_configuration(str(tmp_path), environment={})
    monkeypatch.setenv(SECRETS_VARIABLE, "")  # so that what follows is undone
    install_secrets(loaded.config)
    (spec,) = build_rollout_specs(loaded, load_task(tmp_path), "script:x", 1, None)
    stored = redact_spec(spec)
    assert stored.tool_settings["search"]["api_key_env"] == "FIND_IT"
    assert stored.tool_settings["search"]["corpus"] == f"{tmp_path}/papers"
    assert stored.tool_settings["browse"]["megabytes"] == 2
    assert "sk-very-secret" not in repr(stored)
    process_redactor.cache_clear()
