"""What the recorder makes of orders to free hosts: each asker has an answer, and none waits."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from houston_daemon.maintenance.host_cleanup import CleanupOrder, HostCleanupProcess
from houston_shared import wire
from houston_shared.errors import ExitCode
from houston_shared.home import Home
from houston_shared.store.event_bodies import RolloutCleaned
from houston_shared.store.removed_data_queries import HostCleaning, describe_cleaning
from tests.support import recorder_client
from tests.support.full_home import change
from tests.support.recorder_client import Station, until


def test_each_who_asks_for_the_same_rollout_is_answered(tmp_path: Path) -> None:
    """The second asked for more than the first: that must not be forgotten over it."""
    station = Station(tmp_path / "home").start()
    root = tmp_path / "host"
    person = station.person()
    spec = msgspec.structs.replace(recorder_client.spec("script:x"), host_root=str(root))
    (rollout,) = person.ask(wire.StartRollouts(request="r" * 16, specs=(spec,))).rollouts
    person.ask(wire.Steer(rollout=rollout, action="cancel"))
    for name in ("workspace", "shadow"):
        (root / "rollouts" / rollout / name).mkdir(parents=True)
        (root / "rollouts" / rollout / name / "file").write_bytes(bytes(100_000))

    asked = [
        wire.CleanRollouts(rollouts=(rollout, rollout), claimed="alice"),
        wire.CleanRollouts(rollouts=(rollout,), snapshots=True, claimed="bob"),
    ]
    waiting = [person.send(one) for one in asked]
    assert [type(person.receive(one)) for one in waiting] == [
        wire.RequestStored,
        wire.RequestStored,
    ]
    query = "SELECT body FROM events WHERE kind = 'cleaned' ORDER BY seq"
    until(lambda: len(station.query(query)) == 2, 30)
    told = [msgspec.msgpack.decode(body, type=RolloutCleaned) for (body,) in station.query(query)]
    assert [(one.by, one.snapshots, one.left) for one in told] == [
        ("person:alice", False, ""), ("person:bob", True, ""),
    ]  # fmt: skip
    assert all(one.bytes > 0 for one in told)
    assert not (root / "rollouts" / rollout).exists()
    station.stop()

    change(station.home, "UPDATE events SET body = x'c1' WHERE kind = 'spec'")
    station = Station(station.home.path).start()
    refused = station.person().ask(asked[0])
    assert refused.cause.endswith(f"is damaged: where {rollout} keeps its files is not known.")
    assert (refused.effect, refused.code) == ("Nothing was freed.", ExitCode.DAMAGED)
    station.stop()


def test_snapshots_are_promised_only_where_there_was_something() -> None:
    def words(size: int, **fields: Any) -> str:
        return describe_cleaning(
            HostCleaning(1, 1, RolloutCleaned(by="person:a", bytes=size, **fields))
        )

    assert words(0) == "there was nothing to free"
    assert words(0, left="shadow: busy") == "0 bytes freed, but not all: shadow: busy"
    assert words(2_000).startswith("2.0 kB freed; its snapshots stay")
    assert "none of its files can be brought back" in words(0, snapshots=True)


def test_orders_are_handed_over_however_late_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recorder answers workers meanwhile: it never waits for who frees hosts."""
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(slow))
    cleaner = HostCleanupProcess(Home(tmp_path))
    orders = [CleanupOrder("/nowhere" * 20, f"r-{number}", "files") for number in range(5_000)]
    cleaner.start(orders)
    assert cleaner.take_reports() == []
    cleaner.stop()
    assert len(cleaner.take_reports()) == len(orders), "nothing was done of it, which is said"
