"""GPUs of training runs that ended while no process of theirs was there to give them back."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from houston_daemon.service.gpu_ledger import GpuLedger
from houston_daemon.service.supervisor_inbox import SupervisorInbox
from houston_daemon.service.trainers import Trainers
from houston_shared import gpu_leases, policy_and_run_files, wire
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.config_sections import HostsSettings
from tests.support.recorder_client import Station

RUN = "sft-1"
MINE = f"trainer:{RUN}"


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    made = Station(tmp_path / "home").start()
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def ledger(station: Station) -> GpuLedger:
    """Of a host with one GPU."""
    return GpuLedger(gpu_leases.gpu_ledger_file(station.home), {"local": 1})


@pytest.fixture
def trainers(station: Station, ledger: GpuLedger) -> Trainers:
    loaded = LoadedConfiguration(
        Configuration(hosts=HostsSettings(gpus=1)), station.home, "defaults"
    )
    return Trainers(loaded, station.recorder, SupervisorInbox(), ledger, tuple)


@pytest.fixture
def run(station: Station) -> str:
    """A run that asks for the GPU."""
    policy_and_run_files.training_run_folder(station.home, RUN).mkdir(parents=True)
    station.person().ask(wire.StartTraining(request="r", run=RUN, gpus=1))
    return RUN


def holders(station: Station) -> set[str]:
    """Who has GPUs, or waits for one."""
    now = gpu_leases.read_gpu_ledger(station.home)
    return {one.holder for one in now.leases} | now.waiting.keys()


def test_one_that_was_cancelled_as_its_daemon_died_gives_its_gpu_back(
    station: Station, ledger: GpuLedger, trainers: Trainers, run: str
) -> None:
    ledger.lease(MINE, {"local": 1})
    station.recorder.report_training_state(run, "running", start=True)
    station.person().ask(wire.CancelTraining(run=run))
    trainers.update(time.monotonic())
    assert station.query("SELECT state FROM training_runs") == [("cancelled",)]
    assert holders(station) == set()


def test_one_that_has_ended_holds_nothing(
    station: Station, ledger: GpuLedger, trainers: Trainers, run: str
) -> None:
    """Its daemon died between saying that it failed and giving back what it had."""
    ledger.lease(MINE, {"local": 1})
    ledger.lease("rollout:r", {"local": 1})
    station.recorder.report_training_state(run, "failed", "why")
    trainers.update(time.monotonic())
    assert holders(station) == {"rollout:r"}, "what others hold is theirs"


def test_one_that_is_cancelled_as_it_waits_waits_no_more(
    station: Station, ledger: GpuLedger, trainers: Trainers, run: str
) -> None:
    ledger.lease("rollout:r", {"local": 1})
    trainers.update(time.monotonic())
    assert holders(station) == {"rollout:r", MINE}
    trainers.update(time.monotonic())
    assert holders(station) == {"rollout:r", MINE}, "as long as it waits it keeps its place"
    station.person().ask(wire.CancelTraining(run=run))
    trainers.update(time.monotonic())
    assert holders(station) == {"rollout:r"}
