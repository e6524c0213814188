"""The ledger of GPUs: nobody gets one that another has, unless both asked to share."""

from pathlib import Path

import pytest

from houston_daemon.service.gpu_ledger import GpuLedger

HOSTS = {"local": 2, "gpu2": 1}


@pytest.fixture
def ledger(tmp_path: Path) -> GpuLedger:
    return GpuLedger(tmp_path / "gpus.json", HOSTS)


def test_each_gets_its_own_and_the_next_waits_with_the_reason(ledger: GpuLedger) -> None:
    assert ledger.lease("rollout:a", {"local": 1}) == {"local": (0,)}
    assert ledger.lease("engine:e", {"local": 1}) == {"local": (1,)}
    assert ledger.lease("rollout:a", {"local": 1}) == {"local": (0,)}
    why = ledger.lease("rollout:b", {"local": 1})
    assert why == "waits for 1 GPU on local: all 2 are taken, used by engine e, rollout a"
    assert ledger.snapshot().waiting == {"rollout:b": why}
    ledger.release("rollout:a")
    assert ledger.lease("rollout:b", {"local": 1}) == {"local": (0,)}
    assert ledger.snapshot().waiting == {}


def test_all_or_nothing_over_hosts(ledger: GpuLedger) -> None:
    assert ledger.lease("rollout:a", {"gpu2": 1}) == {"gpu2": (0,)}
    assert isinstance(ledger.lease("rollout:b", {"local": 1, "gpu2": 1}), str)
    assert ledger.gpus_of("rollout:b") == {}
    assert isinstance(ledger.lease("trainer:t", {"local": 2}), str), "b asked first"
    ledger.release("rollout:b")
    assert ledger.lease("trainer:t", {"local": 2}) == {"local": (0, 1)}


@pytest.mark.parametrize(
    ("first", "second", "gets"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_a_gpu_is_shared_only_where_both_asked(
    ledger: GpuLedger, first: bool, second: bool, gets: bool
) -> None:
    assert ledger.lease("rollout:a", {"gpu2": 1}, first) == {"gpu2": (0,)}
    found = ledger.lease("rollout:b", {"gpu2": 1}, second)
    assert (found == {"gpu2": (0,)}) is gets


def test_leases_outlive_the_daemon_and_end_with_their_holders(
    ledger: GpuLedger, tmp_path: Path
) -> None:
    ledger.lease("rollout:a", {"local": 2})
    ledger.lease("rollout:b", {"local": 1})
    later = GpuLedger(tmp_path / "gpus.json", HOSTS)
    assert later.gpus_of("rollout:a") == {"local": (0, 1)}
    assert later.snapshot().waiting == {}
    assert isinstance(later.lease("rollout:b", {"local": 1}), str)
    later.release_others(lambda holder: holder != "rollout:a")
    assert later.lease("rollout:b", {"local": 1}) == {"local": (0,)}


def test_more_than_there_are_is_never_had(ledger: GpuLedger) -> None:
    why = ledger.lease("rollout:a", {"gpu2": 2})
    assert why == "waits for 2 GPUs on gpu2, which has 1 (`gpus` of the host)"


def test_a_ledger_that_was_torn_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "gpus.json").write_bytes(b'{"leases": [')
    assert GpuLedger(tmp_path / "gpus.json", HOSTS).snapshot().leases == ()


def test_who_asked_first_is_served_first_whatever_the_size(tmp_path: Path) -> None:
    """Small requests that come and go would keep a large one waiting for ever."""
    now = [0.0]
    ledger = GpuLedger(tmp_path / "gpus.json", {"local": 2, "gpu2": 1}, lambda: now[0])
    ledger.lease("rollout:small", {"local": 1})
    assert isinstance(ledger.lease("rollout:large", {"local": 2}), str)
    why = ledger.lease("rollout:next", {"local": 1})
    assert why == "waits for 1 GPU on local behind rollout large, which waits for 2 GPUs"
    assert ledger.lease("rollout:elsewhere", {"gpu2": 1}) == {"gpu2": (0,)}
    ledger.release("rollout:small")
    assert isinstance(ledger.lease("rollout:next", {"local": 1}), str), "both are free now"
    assert ledger.lease("rollout:large", {"local": 2}) == {"local": (0, 1)}
    ledger.release("rollout:large")
    assert ledger.lease("rollout:next", {"local": 1}) == {"local": (0,)}


def test_who_cannot_be_served_holds_nobody_back(tmp_path: Path) -> None:
    now = [0.0]
    ledger = GpuLedger(tmp_path / "gpus.json", HOSTS, lambda: now[0])
    ledger.lease("rollout:never", {"local": 3})
    assert ledger.lease("rollout:a", {"local": 1}) == {"local": (0,)}
    assert isinstance(ledger.lease("rollout:large", {"local": 2}), str)
    assert ledger.lease("engine:e", {"local": 1}) == {"local": (1,)}, "rollouts need it"
    ledger.release("engine:e")
    assert isinstance(ledger.lease("rollout:b", {"local": 1}), str)
    now[0] += 60  # the large one was paused, and asks no more
    assert ledger.lease("rollout:b", {"local": 1}) == {"local": (1,)}
    ledger.release("rollout:b")
    assert isinstance(ledger.lease("rollout:large", {"local": 2}), str)
    assert isinstance(ledger.lease("rollout:b", {"local": 1}), str), "it has kept its place"
    ledger.release("rollout:large")
    assert ledger.lease("rollout:b", {"local": 1}) == {"local": (1,)}, "or was cancelled"
