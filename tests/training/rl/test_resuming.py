"""`houston train … --resume` of the daemon's own runs: GPUs may change, the recipe may not."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.commands import train_prm_commands, train_rl_commands
from houston_daemon.training.prm.prm_recipe import load_prm_recipe
from houston_daemon.training.prm.prm_run_folder import PrmRunFolder, PrmRunSpec
from houston_daemon.training.rl.rl_recipe import load_rl_recipe
from houston_daemon.training.rl.rl_run_folder import RlRunFolder, RlRunSpec
from houston_shared import wire
from houston_shared.config import load_configuration
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.home_lock import HomeLock, HomeOwner
from houston_shared.policy_and_run_files import training_folder
from houston_shared.store.training_event_bodies import RunState
from tests.support.recorder_client import Station

KINDS = ("dapo", "grpo", "prm")
ASKED: dict[str, Any] = {"run": "cut", "name": "p", "home": "", "base_hash": "", "gpus": 1}


def resumed(kind: str, home: Path, *words: str) -> tuple[int, bool]:
    """GPUs of a run that was asked for with one, when it goes on, and whether it may share them."""
    loaded = load_configuration(str(home), None)
    parser = argparse.ArgumentParser()
    folder = training_folder(loaded.home) / "cut"
    if kind == "prm":
        spec = PrmRunSpec(recipe=load_prm_recipe("small", []), labels_hash="", **ASKED)
        PrmRunFolder(folder).write_spec(spec)
        train_prm_commands.add_train_prm_arguments(parser)
        arguments = parser.parse_args(["--resume", "cut", *words])
        asked = train_prm_commands._resume_run(loaded, arguments).spec
        return asked.gpus, asked.share_gpus
    plain = RlRunSpec(recipe=load_rl_recipe(kind, []), parent="", active_before="", **ASKED)
    RlRunFolder(folder).write_spec(plain)
    train_rl_commands.add_train_rl_arguments(parser, kind)
    arguments = parser.parse_args(["--resume", "cut", *words])
    going_on = train_rl_commands._resume_run(loaded, arguments).spec
    return going_on.gpus, going_on.share_gpus


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("words", "gpus"),
    [
        ((), (1, False)),
        (("--gpus", "0"), (0, False)),
        (("--share-gpus",), (1, True)),
    ],
)
def test_a_run_goes_on_with_the_gpus_that_are_asked_for_now(
    tmp_path: Path, kind: str, words: tuple[str, ...], gpus: tuple[int, bool]
) -> None:
    assert resumed(kind, tmp_path, *words) == gpus


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flag", ["--recipe", "--name", "--base"])
def test_what_only_a_new_run_takes_is_refused(tmp_path: Path, kind: str, flag: str) -> None:
    with pytest.raises(HoustonError, match=f"--resume takes no {flag}") as refused:
        resumed(kind, tmp_path, flag, "small")
    assert refused.value.code == ExitCode.USAGE


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("state", ["queued", "running"])
def test_a_run_that_the_daemon_has_is_left_as_it_is(
    tmp_path: Path, kind: str, state: RunState
) -> None:
    resumed(kind, tmp_path)
    folder = training_folder(Home(tmp_path)) / "cut"
    before = {file: file.read_bytes() for file in folder.iterdir()}
    station, lock = Station(tmp_path).start(), HomeLock(Home(tmp_path))
    try:
        lock.take(HomeOwner(pid=1, since="now"))
        station.person().ask(wire.StartTraining(request="r", run="cut"))
        station.recorder.report_training_state("cut", state, "", start=state == "running")
        with pytest.raises(HoustonError, match=f"The daemon has cut already .{state}.") as refused:
            resumed(kind, tmp_path, "--gpus", "0", "--share-gpus")
    finally:
        lock.release()
        station.stop()
    assert refused.value.code == ExitCode.BUSY
    assert {file: file.read_bytes() for file in folder.iterdir()} == before
