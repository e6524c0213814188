"""GPUs of trainers: leased like everybody's; an engine's only where both sides share."""

from pathlib import Path

import pytest

from houston_daemon.service.gpu_ledger import GpuLedger
from houston_daemon.service.trainers import TrainerGpus
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.config_sections import HostsSettings, RaySettings
from houston_shared.engine_settings import EngineSettings
from houston_shared.home import Home

CASES: dict[str, tuple[int, bool, dict[str, tuple[int, bool]], tuple[str, ...], str, bool]] = {
    # wanted, share; engine: GPUs, shared; engines that run; what is said; whether it waits
    "nothing is wanted": (0, False, {}, (), "", False),
    "free ones": (2, False, {}, (), "", False),
    "more than there are": (3, False, {}, (), "asks for 3 GPUs and this host has 2", False),
    "one is an engine's, one is free": (1, False, {"big": (1, False)}, ("big",), "", False),
    "both are an engine's": (
        1, False, {"big": (2, False)}, ("big",), "by engine big: train with --share-gpus", False,
    ),
    "both share": (2, True, {"big": (2, True)}, ("big",), "", False),
    "the engine does not share": (
        1, True, {"big": (2, False)}, ("big",), "set `engines.big.gpus_shared`", False,
    ),
    "an engine that sees all": (
        1, False, {}, ("blind",), "engine blind leases no GPU and sees all of them", False,
    ),
    "beside one that sees all, as asked": (1, True, {}, ("blind",), "", False),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_who_gets_which(tmp_path: Path, name: str) -> None:
    wanted, share, held, running, why, waits = CASES[name]
    engines = {"big": EngineSettings(kind="vllm", gpus=2), "blind": EngineSettings(kind="vllm")}
    loaded = LoadedConfiguration(
        Configuration(hosts=HostsSettings(gpus=2), engines=engines), Home(tmp_path), "x"
    )
    ledger = GpuLedger(tmp_path / "gpus.json", {"local": 2})
    for engine, (count, shared) in held.items():
        assert isinstance(ledger.lease(f"engine:{engine}", {"local": count}, shared), dict)
    gpus = TrainerGpus(loaded, ledger, lambda: running)
    said = gpus.lease("sft-1", wanted, share)
    if not why:
        assert said is None
        assert len(gpus.gpus_of("sft-1")) == wanted
        assert gpus.visible("sft-1")["CUDA_VISIBLE_DEVICES"].count(",") == max(0, wanted - 1)
        gpus.release("sft-1")
        assert gpus.gpus_of("sft-1") == ()
    else:
        assert said is not None
        assert why in said.why
        assert said.waits is waits


def test_sampling_and_training_have_gpus_of_their_own(tmp_path: Path) -> None:
    """The engine of a run of reinforcement learning on one GPU, its trainer on the other."""
    engines = {"policy": EngineSettings(kind="vllm", gpus=1)}
    loaded = LoadedConfiguration(
        Configuration(hosts=HostsSettings(gpus=2), engines=engines), Home(tmp_path), "x"
    )
    ledger = GpuLedger(tmp_path / "gpus.json", {"local": 2})
    assert ledger.lease("engine:policy", {"local": 1}) == {"local": (0,)}
    gpus = TrainerGpus(loaded, ledger, lambda: ("policy",))
    assert gpus.lease("rl-1", 1, False) is None
    assert gpus.visible("rl-1")["CUDA_VISIBLE_DEVICES"] == "1"
    assert ledger.gpus_of("engine:policy") == {"local": (0,)}, "and neither has the other's"
    gpus.release("rl-1")
    assert gpus.lease("rl-1", 1, False) is None and gpus.gpus_of("rl-1") == (1,), "also later"


@pytest.mark.parametrize(
    ("address", "count", "leased"),
    [
        pytest.param("gpu1:6379", 4, 0, id="several are the cluster's"),
        pytest.param("gpu1:6379", 1, 1, id="one is of this machine"),
        pytest.param("local", 2, 2, id="a cluster of this machine has none"),
    ],
)
def test_a_cluster_gives_several(tmp_path: Path, address: str, count: int, leased: int) -> None:
    configuration = Configuration(hosts=HostsSettings(gpus=2), ray=RaySettings(address=address))
    loaded = LoadedConfiguration(configuration, Home(tmp_path), "x")
    gpus = TrainerGpus(loaded, GpuLedger(tmp_path / "gpus.json", {"local": 2}), lambda: ())
    assert gpus.lease("sft-1", count, False) is None
    assert len(gpus.gpus_of("sft-1")) == leased


def test_it_waits_for_a_rollout(tmp_path: Path) -> None:
    loaded = LoadedConfiguration(Configuration(hosts=HostsSettings(gpus=1)), Home(tmp_path), "x")
    ledger = GpuLedger(tmp_path / "gpus.json", {"local": 1})
    ledger.lease("rollout:r", {"local": 1})
    gpus = TrainerGpus(loaded, ledger, lambda: ())
    said = gpus.lease("sft-1", 1, False)
    assert said is not None
    assert said.waits
    assert "used by rollout r" in said.why
    assert gpus.visible("sft-1")["CUDA_VISIBLE_DEVICES"] == "", "it sees none"
    ledger.release("rollout:r")
    assert gpus.lease("sft-1", 1, False) is None
