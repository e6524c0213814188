"""A home's copy in a store: whole after any fault, one home's, and a home again elsewhere."""

import errno
import sqlite3
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from houston_daemon.artifacts import (
    artifact_copier,
    home_restore,
    journal_segments,
    store_owner,
)
from houston_daemon.artifacts.artifact_copier import ArtifactCopier
from houston_daemon.artifacts.artifact_store import (
    ArtifactStore,
    ObjectDamaged,
    ObjectMissing,
    StoreRefused,
)
from houston_daemon.artifacts.missing_files import fetch_missing_adapter
from houston_daemon.artifacts.snapshot_bundles import RolloutSnapshots, fetch_shadow
from houston_daemon.artifacts.store_owner import StoreTaken, read_owners
from houston_daemon.hosts.snapshots.shadow_repository import ShadowRepository
from houston_daemon.maintenance import event_erasure, home_backup
from houston_daemon.maintenance.home_verification import verify_home
from houston_shared import wire
from houston_shared.errors import ConfigurationError, ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.times_and_counts import iso_time
from tests.support import s3_server, small_disk
from tests.support.full_home import fill
from tests.support.recorder_client import Station, spec
from tests.support.s3_server import Fault, Line

ADAPTER = "policies/policy@2/adapter_config.json"


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    made = Station(tmp_path / "home").start()
    fill(made)
    (made.home.path / ADAPTER).write_text('{"peft_type": "LORA"}')
    yield made
    made.stop()


def copier(station: Station, store: ArtifactStore, host: str = "here") -> ArtifactCopier:
    return ArtifactCopier(store, station.home, station.home.path / "no-host", host)


def restore(store: ArtifactStore, into: Path, until: int = 0) -> Home:
    home = Home(into)
    made = home_restore.fetch_backup(store, home, until)
    home_backup.restore_backup(home.backups / made.name, home, store.url)
    return home


def events(home: Home, last: int = 2**62) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(f"file:{home.database}?mode=ro", uri=True)
    try:
        return connection.execute("SELECT * FROM events WHERE seq <= ?", (last,)).fetchall()
    finally:
        connection.close()


def test_a_home_is_the_same_elsewhere(
    station: Station, any_store: ArtifactStore, tmp_path: Path
) -> None:
    copying = copier(station, any_store)
    assert copying.round() == copying.seq == len(events(station.home))
    assert copying.round() == 0, "nothing is copied twice"
    note = store_owner.read_copied(station.home, any_store.url)
    ((newest,),) = station.query("SELECT at FROM events ORDER BY seq DESC LIMIT 1")
    assert note is not None and note.at == iso_time(newest), "nothing behind it is promised"
    station.working().step(1)
    assert copying.round() > 0
    home = restore(any_store, tmp_path / "elsewhere")
    assert verify_home(home).sound
    assert events(home, copying.seq) == events(station.home, copying.seq)
    assert (home.path / ADAPTER).read_text() == '{"peft_type": "LORA"}'
    assert list(home.blobs.rglob("*.zst")), "large bodies came with it"


def test_a_process_that_begins_anew_copies_only_what_is_new(
    station: Station, store: ArtifactStore, line: Line
) -> None:
    copier(station, store).round()
    before = line.uploads
    assert copier(station, store).round() == 0
    assert line.uploads == before


class CutStore(ArtifactStore):
    """A store of which the process is killed before its n-th change."""

    def __init__(self, url: str, left: int) -> None:
        super().__init__(url)
        self.left = left

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt

    def write(self, name: str, data: bytes) -> None:
        self._count()
        super().write(name, data)

    def write_file(self, name: str, source: Path, sha256: str) -> None:
        self._count()
        super().write_file(name, source, sha256)

    def create(self, name: str, data: bytes) -> bool:
        self._count()
        return super().create(name, data)

    def remove(self, names: Collection[str]) -> None:
        self._count()
        super().remove(names)


def test_killed_before_any_change_it_goes_on(station: Station, tmp_path: Path) -> None:
    """What is in the store is always a home, or nothing."""
    base = f"file://{tmp_path}/store"
    changes = 0
    while True:
        url = f"{base}{changes}"
        try:
            copier(station, CutStore(url, changes)).round()
            break
        except KeyboardInterrupt:
            pass
        store = ArtifactStore(url)
        if journal_segments.list_segments(store):
            assert verify_home(restore(store, tmp_path / f"cut{changes}")).sound
        copier(station, store).round()
        home = restore(store, tmp_path / f"whole{changes}")
        assert events(home, len(events(station.home))) == events(station.home), changes
        changes += 1
    assert changes >= 5, "claim, body, adapter, head, run"


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        pytest.param("cut", "cannot be used", id="gone in mid-upload"),
        pytest.param("gone", "cannot be used", id="gone"),
        pytest.param("forbidden", "Access Denied", id="refused"),
        pytest.param("quota", "quota of the bucket is spent", id="full"),
    ],
)
def test_what_the_store_refuses_waits_and_is_copied_later(
    station: Station, store: ArtifactStore, line: Line, tmp_path: Path, fault: Fault, says: str
) -> None:
    copying = copier(station, store)
    copying.round()
    station.working().step(1)
    before = events(station.home)
    line.fault = fault
    with pytest.raises(StoreRefused) as refused:
        copying.round()
    assert says in refused.value.cause
    assert s3_server.SECRET not in str(refused.value)
    assert events(station.home) == before, "nothing here is touched"
    line.fault = ""
    assert copying.round() > 0
    assert events(restore(store, tmp_path / "new"), copying.seq) == before


def harm(store: ArtifactStore, folder: str, change: Callable[[bytes], bytes] | None) -> str:
    """Change the newest object of a folder, or remove it; its name."""
    name = max(store.list(folder))
    if change is None:
        store.remove([name])
    else:
        store.write(name, change(store.read(name)))
    return name


def flip(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    ("folder", "change", "code"),
    [
        pytest.param("journal", flip, ExitCode.DAMAGED, id="a run is corrupted"),
        pytest.param("journal", lambda _: b"", ExitCode.DAMAGED, id="a run is empty"),
        pytest.param("blobs", flip, ExitCode.DAMAGED, id="a body is corrupted"),
        pytest.param("blobs", None, ExitCode.NOT_FOUND, id="a body is missing"),
        pytest.param("objects", flip, ExitCode.DAMAGED, id="an adapter is corrupted"),
        pytest.param("objects", None, ExitCode.NOT_FOUND, id="an adapter is missing"),
        pytest.param("heads", lambda _: b"{", ExitCode.DAMAGED, id="the head is corrupted"),
        pytest.param("heads", None, ExitCode.NOT_FOUND, id="the head is missing"),
    ],
)
def test_what_is_damaged_in_the_store_is_named_and_nothing_is_restored(
    station: Station,
    store: ArtifactStore,
    tmp_path: Path,
    folder: str,
    change: Callable[[bytes], bytes] | None,
    code: ExitCode,
) -> None:
    copier(station, store).round()
    name = harm(store, folder, change)
    with pytest.raises(HoustonError) as lost:
        restore(store, tmp_path / "new")
    assert lost.value.code == code
    assert store.url in lost.value.cause
    assert folder == "heads" or name.rpartition("/")[2] in lost.value.cause
    assert not [path for path in (tmp_path / "new").rglob("*") if path.is_file()]


def test_a_run_in_the_middle_is_missing(
    station: Station, store: ArtifactStore, tmp_path: Path
) -> None:
    """It says up to where all is sound, and restores to there."""
    copying = copier(station, store)
    copying.round()
    sound = copying.seq
    for _ in range(2):
        station.working().step(1)
        copying.round()
    segments = sorted(journal_segments.list_segments(store))
    store.remove([segments[1].name])
    with pytest.raises(HoustonError, match=f"lacks event {sound + 1}") as lost:
        restore(store, tmp_path / "new")
    assert f"--until {sound}" in lost.value.next
    home = restore(store, tmp_path / "new", until=sound)
    assert events(home, sound) == events(station.home, sound)


def test_a_full_disk_leaves_nothing_behind(
    station: Station, store: ArtifactStore, tmp_path: Path
) -> None:
    copier(station, store).round()
    (tmp_path / "small").mkdir()
    with small_disk.mounted(tmp_path / "small", 8):
        filler = small_disk.fill(tmp_path / "small", leave=20_000)
        home = tmp_path / "small" / "home"
        with pytest.raises(HoustonError, match=r"No space left|disk is full"):
            restore(store, home)
        assert not [path for path in home.rglob("*") if path.is_file()]
        filler.unlink()
        assert verify_home(restore(store, home)).sound


def test_a_home_with_files_is_not_restored_into(
    station: Station, store: ArtifactStore, tmp_path: Path
) -> None:
    copier(station, store).round()
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match="is not empty"):
        restore(store, tmp_path / "new")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["notes.txt"]


def test_nothing_is_there_to_restore(store: ArtifactStore, tmp_path: Path) -> None:
    with pytest.raises(HoustonError, match="holds no home"):
        restore(store, tmp_path / "new")


def test_two_homes_on_one_prefix(
    station: Station, any_store: ArtifactStore, tmp_path: Path
) -> None:
    """The second copies nothing; once it has taken over, the first copies nothing more, and what
    the first writes even so is not read."""
    store = any_store
    first = copier(station, store)
    first.round()
    shared = first.seq
    other = Station(restore(store, tmp_path / "other").path)
    second = copier(other, store, "there")
    with pytest.raises(StoreTaken, match=str(station.home.path)):
        second.round()
    assert len(read_owners(store)) == 1

    assert artifact_copier.take_over(store, other.home, "there").after == shared
    other.start()
    other.working().step(1)
    try:
        assert second.round() > 0
        station.working().step(1)
        with pytest.raises(StoreTaken, match=str(other.home.path)):
            first.round()
        stray = artifact_copier.query_home(
            station.home, lambda home: artifact_copier.fetch_events(home, shared, 100)
        )
        segment, packed = journal_segments.make_segment(stray, owner=1)
        store.write(segment.name, packed)  # it had begun before it could know
        home = restore(store, tmp_path / "third")
        assert events(home, second.seq) == events(other.home, second.seq)

        artifact_copier.take_over(store, other.home, "there")
        assert len(read_owners(store)) == 2, "it is the owner already"
    finally:
        other.stop()


def test_homes_that_share_nothing(station: Station, store: ArtifactStore, tmp_path: Path) -> None:
    copier(station, store).round()
    other = Station(tmp_path / "other").start()
    other.stop()
    with pytest.raises(HoustonError, match="they share no event"):
        artifact_copier.take_over(store, other.home, "there")


def test_a_copied_home_is_another(station: Station, store: ArtifactStore, tmp_path: Path) -> None:
    copier(station, store).round()
    copy = Home(tmp_path / "copy")
    copy.path.mkdir()
    for name in ("houston.db", "artifacts.json"):
        (copy.path / name).write_bytes((station.home.path / name).read_bytes())
    with pytest.raises(StoreTaken):
        ArtifactCopier(store, copy, tmp_path, "here").round()
    with pytest.raises(StoreTaken):
        copier(station, store, "another machine").round()


def objects_with(store: ArtifactStore, text: bytes) -> list[str]:
    """Names of objects that hold a text, unpacked."""
    found = []
    for name in store.list(""):
        data = store.read(name)
        if data[:4] == zstandard.FRAME_HEADER[:4]:
            data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
        if text in data:
            found.append(name)
    return found


def test_what_is_erased_here_is_erased_there(
    station: Station, store: ArtifactStore, tmp_path: Path
) -> None:
    copying = copier(station, store)
    copying.round()
    worker = station.working()
    for step, text in ((1, "short"), (2, "and long " * 20_000)):
        worker.sample(step)
        worker.intent(step)
        worker.result(step, text=f"the-leaked-word {text}")
        worker.observation(step)
        copying.round()
    worker.say(wire.StoreState, state="finished")
    assert len(objects_with(store, b"the-leaked-word")) == 2
    batches = event_erasure.select_events_with_text(station.home, "the-leaked-word")
    station.stop()
    event_erasure.erase_events(station.home, batches, text="the-leaked-word")
    copying.round()
    assert objects_with(store, b"the-leaked-word") == []
    assert verify_home(restore(store, tmp_path / "new")).sound


def test_many_short_runs_become_one(
    station: Station, store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_segments, "MERGED_SEGMENTS", 4)
    copying = copier(station, store)
    worker = station.working()
    for step in range(1, 20):
        worker.step(step)
        copying.round()
    segments = journal_segments.list_segments(store)
    assert len(segments) < 8
    assert max(segment.level for segment in segments) == 2
    home = restore(store, tmp_path / "new")
    assert events(home, copying.seq) == events(station.home)


def test_an_older_home_does_not_take_the_place_of_a_newer_one(
    station: Station, store: ArtifactStore
) -> None:
    copier(station, store).round()
    station.stop()
    with sqlite3.connect(station.home.database) as connection:
        connection.execute("DELETE FROM events WHERE seq > 3")
    with pytest.raises(HoustonError, match="holds event"):
        copier(station, store).round()


def test_a_damaged_body_is_not_copied_as_if_it_were_sound(
    station: Station, store: ArtifactStore
) -> None:
    (blob,) = station.home.blobs.rglob("*.zst")
    blob.write_bytes(flip(blob.read_bytes()))
    with pytest.raises(HoustonError, match="missing or damaged") as damaged:
        copier(station, store).round()
    assert damaged.value.code == ExitCode.DAMAGED
    assert not store.list("blobs")


def test_an_adapter_that_is_missing_is_fetched(station: Station, store: ArtifactStore) -> None:
    copying = copier(station, store)
    copying.round()
    folder = (station.home.path / ADAPTER).parent
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    station.working().step(1)
    copying.round()  # it stays in the store
    assert fetch_missing_adapter(store.url, station.home, "policy@2")
    assert (station.home.path / ADAPTER).read_text() == '{"peft_type": "LORA"}'
    assert not fetch_missing_adapter(store.url, station.home, "policy@2"), "it is here"
    assert not fetch_missing_adapter(store.url, station.home, "policy@9"), "nobody has it"


def test_objects_are_compared_on_both_ways(any_store: ArtifactStore, tmp_path: Path) -> None:
    any_store.write("a/b", b"hello")
    assert any_store.list("a") == {"a/b": 5}
    with pytest.raises(ObjectDamaged):
        any_store.read("a/b", "0" * 64)
    with pytest.raises(ObjectDamaged):
        any_store.read_file("a/b", tmp_path / "file", "0" * 64)
    assert not (tmp_path / "file").exists()
    with pytest.raises(ObjectMissing):
        any_store.read("a/c")
    (tmp_path / "source").write_bytes(b"other")
    with pytest.raises(StoreRefused, match="different bytes were read back"):
        any_store.write_file("a/d", tmp_path / "source", "0" * 64)
    assert any_store.create("once", b"first")
    assert not any_store.create("once", b"second")
    assert any_store.read("once") == b"first"


@pytest.mark.parametrize("fails", ["put", "mv"])
def test_a_write_that_fails_leaves_nothing_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """In a folder that a network serves, say: what is beside takes room, and nobody lists it."""
    store = ArtifactStore(f"file://{tmp_path}/store")
    source = tmp_path / "source"
    source.write_bytes(b"hello")
    real_put = store._fs.pipe_file

    def put_half(path: str, _: object) -> None:
        real_put(path, b"hel")
        fail()

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if fails == "put":
        monkeypatch.setattr(store._fs, "pipe_file", put_half)
        monkeypatch.setattr(store._fs, "put_file", lambda source, path: put_half(path, source))
    else:
        monkeypatch.setattr(store._fs, "mv", fail)
    with pytest.raises(StoreRefused, match="No space left"):
        store.write_file("a/b", source, "")
    with pytest.raises(StoreRefused, match="No space left"):
        store.write("a/b", b"hello")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [source]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        pytest.param("ftp7://host/x", "no store that fsspec knows", id="nobody knows the scheme"),
        pytest.param("dvc://host/x", "package that is not installed", id="package missing"),
    ],
)
def test_urls_that_cannot_be_opened(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        ArtifactStore(url)


def test_the_head_cannot_write_outside_of_the_home(
    station: Station, store: ArtifactStore, tmp_path: Path
) -> None:
    copier(station, store).round()
    name = max(store.list("heads"))
    head = msgspec.json.decode(store.read(name))
    head["files"]["../../../stolen"] = next(iter(head["files"].values()))
    store.write(name, msgspec.json.encode(head))
    with pytest.raises(HoustonError, match="outside of a home"):
        restore(store, tmp_path / "new")
    assert not (tmp_path / "stolen").exists()


async def test_snapshots_are_read_where_the_rollout_was_started_to_keep_them(
    station: Station, store: ArtifactStore, tmp_path: Path
) -> None:
    """Another `hosts.root` since changes nothing for it."""
    rollout, commit = await _take_snapshot(station, tmp_path / "first-root")
    copier(station, store).round()
    assert fetch_shadow(store, rollout, tmp_path / "shadow") == commit


async def test_a_snapshot_that_could_not_be_read_is_tried_again_without_an_event(
    station: Station, store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a rollout that has ended none comes any more."""

    def cannot_read(_: RolloutSnapshots) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    rollout, commit = await _take_snapshot(station, tmp_path / "root")
    copying = copier(station, store)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(RolloutSnapshots, "copy", cannot_read)
        copying.round()
        assert copying.round() == 0
        assert copying.unreadable.keys() == {rollout}
    assert copying.round() == 0
    assert copying.unreadable == {}
    assert fetch_shadow(store, rollout, tmp_path / "shadow") == commit


async def _take_snapshot(station: Station, root: Path) -> tuple[str, str]:
    """A rollout that keeps its files there, and the snapshot of its first step."""
    person = station.person()
    message = wire.StartRollouts(
        request="s", specs=(msgspec.structs.replace(spec(), host_root=str(root)),)
    )
    (rollout,) = person.ask(message).rollouts
    folder = root / "rollouts" / rollout
    (folder / "workspace").mkdir(parents=True)
    (folder / "workspace" / "a").write_text("1")
    repository = ShadowRepository(folder / "workspace", folder / "shadow")
    commit = (await repository.take("step")).commit
    await repository.close()
    station.worker(rollout).step(1, snapshot=commit)
    return rollout, commit
