"""Which GPUs a trainer sees that no daemon starts: none that anybody has leased."""

import argparse
from pathlib import Path

import pytest

from houston_daemon.commands import train_sft_commands
from houston_daemon.service.gpu_ledger import GpuLedger
from houston_daemon.training.runs import run_progress
from houston_daemon.training.sft import sft_launch
from houston_daemon.training.sft.sft_recipe import SftRecipe
from houston_daemon.training.sft.sft_run_folder import RunFolder, RunSpec
from houston_shared import gpu_leases
from houston_shared.config import LoadedConfiguration, load_configuration
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.policy_and_run_files import training_folder
from tests.support.recorder_client import until
from tests.training.sft import tiny

RUN = "sft-1"


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedConfiguration:
    """A home on a machine with three GPUs."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    home = tmp_path / "home"
    home.mkdir()
    (home / "houston.toml").write_text("[hosts]\ngpus = 3\n")
    return load_configuration(str(home), None)


def lease(loaded: LoadedConfiguration, *holders: str) -> None:
    """One GPU each, from 0 on."""
    ledger = GpuLedger(gpu_leases.gpu_ledger_file(loaded.home), {"local": loaded.gpus("local")})
    for holder in holders:
        assert isinstance(ledger.lease(holder, {"local": 1}), dict)


ALL = ("engine:big", "rollout:r", "trainer:sft-2")

SEEN: dict[str, tuple[tuple[str, ...], int, bool, str | None, str | None]] = {
    # who has one each; how many are wanted, engines' too; what CUDA_VISIBLE_DEVICES says; is seen
    "nobody has any": ((), 2, False, None, "0,1"),
    "an engine, a rollout": (("engine:big", "rollout:r"), 1, False, None, "2"),
    "another trainer": (("trainer:sft-2",), 2, False, None, "1,2"),
    "a daemon that died has left it its own": ((f"trainer:{RUN}",), 3, False, None, "0,1,2"),
    "beside an engine, as asked": (ALL, 1, True, None, "0"),
    "an engine's only where no other is left": (("engine:big",), 2, True, None, "1,2"),
    "none is wanted": (ALL, 0, False, None, ""),
    "none is wanted, and some are shown": ((), 0, False, "1", ""),
    "what a person shows": (("rollout:r",), 1, False, "0, 2", "2"),
    "what a person shows, where nobody has any": ((), 1, False, "GPU-5a", None),
}


@pytest.mark.parametrize("case", SEEN)
def test_it_sees_only_what_nobody_has_leased(
    loaded: LoadedConfiguration, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    holders, count, share, visible, expected = SEEN[case]
    lease(loaded, *holders)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    environment = sft_launch.environment_with_gpus(loaded, RUN, count, share)
    assert environment.get("CUDA_VISIBLE_DEVICES") == expected


REFUSED: dict[str, tuple[tuple[str, ...], int, bool, str | None, str]] = {
    "all are taken": (ALL, 1, False, None, "for 1 GPU, and 0 of 3 are free: leased are 0 by eng"),
    "too few are left": (("rollout:r",), 3, False, None, "for 3 GPUs, and 2 of 3 are free"),
    "sharing is with engines only": (ALL, 2, True, None, "1 of 3 is free"),
    "those that a person shows": (("rollout:r",), 1, False, "0", "0 of 1 are free"),
    "shown by a name that no lease has": (("rollout:r",), 1, False, "GPU-5a", "GPUs by number"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_where_too_few_are_left_it_says_who_has_them(
    loaded: LoadedConfiguration, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    holders, count, share, visible, why = REFUSED[case]
    lease(loaded, *holders)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(HoustonError) as refused:
        sft_launch.environment_with_gpus(loaded, RUN, count, share)
    assert why in refused.value.cause
    assert ("--share-gpus" in refused.value.next) == (holders == ALL and not share)


def test_a_home_without_gpus_leaves_what_a_person_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_configuration(str(tmp_path / "home"), None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert sft_launch.environment_with_gpus(loaded, RUN, 0, False) == {}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert sft_launch.environment_with_gpus(loaded, RUN, 0, False)["CUDA_VISIBLE_DEVICES"] == ""


def train(loaded: LoadedConfiguration, *words: str) -> None:
    parser = argparse.ArgumentParser()
    train_sft_commands.add_train_sft_arguments(parser)
    train_sft_commands.run_train_sft(parser.parse_args([*words, "--detach"]), loaded)


def test_a_new_run_that_is_refused_for_gpus_is_not_begun(
    tmp_path: Path, loaded: LoadedConfiguration
) -> None:
    lease(loaded, *ALL)
    base = tiny.save_model(tmp_path / "base")
    data = tiny.write(tmp_path / "data", tiny.rows())
    with pytest.raises(HoustonError) as refused:
        train(loaded, "--data", str(data), "--base", str(base))
    assert refused.value.code == ExitCode.BUSY
    assert not training_folder(loaded.home).exists()


def test_its_process_sees_the_others_not(
    tmp_path: Path, loaded: LoadedConfiguration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real trainer, which ends for want of a model; Python notes what it was started with."""
    lease(loaded, "rollout:r")
    folder = RunFolder(training_folder(loaded.home) / RUN)
    folder.write_spec(RunSpec(run=RUN, recipe=SftRecipe(base="/no/model"), gpus=1))
    noted = tmp_path / "noted"
    (tmp_path / "sitecustomize.py").write_text(
        f"import os\nopen({str(noted)!r}, 'w').write(os.environ['CUDA_VISIBLE_DEVICES'])\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    train(loaded, "--resume", RUN)

    def failed() -> bool:
        progress = run_progress.read_progress(folder.path)
        return progress is not None and progress.state == "failed"

    assert until(failed, 120)
    assert noted.read_text() == "1"
