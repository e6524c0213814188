"""What `houston doctor` says of the store outside."""

from pathlib import Path

from houston_daemon.artifacts import store_owner
from houston_daemon.artifacts.artifact_copier import ArtifactCopier
from houston_daemon.artifacts.artifact_store import ArtifactStore
from houston_daemon.service.check_findings import CheckFinding
from houston_daemon.service.configuration_checks import check_artifact_store
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.config_sections import ArtifactSettings
from tests.support import s3_server
from tests.support.recorder_client import Station
from tests.support.s3_server import Line


def findings(station: Station, url: str) -> list[CheckFinding]:
    config = Configuration(artifacts=ArtifactSettings(url=url))
    return list(check_artifact_store(LoadedConfiguration(config, station.home, "defaults")))


def copy(station: Station, store: ArtifactStore) -> int:
    """As the daemon does it here; the last event that the store has then."""
    copier = ArtifactCopier(store, station.home, station.home.path / "none")
    copier.round()
    return copier.seq


def test_a_home_without_a_store_is_asked_nothing(tmp_path: Path) -> None:
    assert findings(Station(tmp_path / "home"), "") == []


def test_a_store_that_answers(tmp_path: Path, store: ArtifactStore) -> None:
    station = Station(tmp_path / "home").start()
    try:
        (before,) = findings(station, store.url)
        assert (before.state, before.next) == ("warn", "houston daemon start, which copies")
        assert "nothing is copied yet" in before.text
        seq = copy(station, store)
        (after,) = findings(station, store.url)
        assert after.state == "ok" and f"has event {seq}, as of" in after.text
    finally:
        station.stop()


def test_a_store_of_another_home(tmp_path: Path, store: ArtifactStore) -> None:
    station = Station(tmp_path / "home").start()
    try:
        copy(station, store)
    finally:
        station.stop()
    other = Station(tmp_path / "other")
    other.home.path.mkdir()
    (taken,) = findings(other, store.url)
    assert taken.state == "fail" and str(station.home.path) in taken.text
    assert "--take-over" in taken.next


def test_a_store_that_is_gone(tmp_path: Path, store: ArtifactStore, line: Line) -> None:
    station = Station(tmp_path / "home")
    line.fault = "gone"
    (refused,) = findings(station, store.url)
    assert refused.state == "fail" and store.url in refused.text
    assert s3_server.SECRET not in f"{refused.text} {refused.next}"
    assert store_owner.read_note(station.home) is None, "a check changes nothing"
