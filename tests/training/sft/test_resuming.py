"""`houston train sft --resume`: what is refused is said before anything of the run changes.

Daemons are a recorder and the home's lock: nothing that is refused here is sent to them.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from houston_daemon.commands import train_sft_commands
from houston_daemon.training.rows.training_row import RowOptions
from houston_daemon.training.runs import run_progress
from houston_daemon.training.sft import create_run
from houston_daemon.training.sft.sft_recipe import SftRecipe
from houston_daemon.training.sft.sft_run_folder import RunFolder, RunSpec
from houston_shared import policy_and_run_files, wire
from houston_shared.config import LoadedConfiguration, load_configuration
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.home_lock import HomeLock, HomeOwner
from houston_shared.store.training_event_bodies import PolicyRegistered, RunState
from tests.support.recorder_client import Station
from tests.training.sft import tiny

RUN = "sft-1"


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedConfiguration:
    return load_configuration(str(tmp_path / "home"), None)


@pytest.fixture
def folder(loaded: LoadedConfiguration) -> RunFolder:
    """Of a run that was cut short."""
    run = RunFolder(policy_and_run_files.training_run_folder(loaded.home, RUN))
    run.write_spec(RunSpec(run=RUN, recipe=SftRecipe(base="/no/model")))
    run_progress.ProgressWriter(run.path).set_state("running", "step 7")
    return run


@pytest.fixture
def daemon(loaded: LoadedConfiguration, folder: RunFolder) -> Iterator[Station]:
    station = Station(loaded.home.path).start()
    lock = HomeLock(loaded.home)
    lock.take(HomeOwner(pid=1, since="now"))
    try:
        yield station
    finally:
        lock.release()
        station.stop()


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    train_sft_commands.add_train_sft_arguments(parser)
    return parser.parse_args(list(words))


def resumed(loaded: LoadedConfiguration, *words: str) -> HoustonError:
    """What `--resume` says with these words, which leaves everything of the run as it was."""
    folder = policy_and_run_files.training_run_folder(loaded.home, RUN)
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    with pytest.raises(HoustonError) as refused:
        train_sft_commands.run_train_sft(parsed("--resume", RUN, *words), loaded)
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before
    return refused.value


KEPT: dict[str, tuple[str, ...]] = {
    "rollouts": ("r1",),
    "--data": ("--data", "/somewhere"),
    "--held-out": ("--held-out", "0.2"),
    "--recipe": ("--recipe", "small"),
    "--overlap": ("--overlap", "once"),
    "--no-masking": ("--no-masking",),
    "--no-summaries": ("--no-summaries",),
    "--unjudged": ("--unjudged", "keep"),
    "--thoughts": ("--thoughts", "strip"),
    "--dialect": ("--dialect", "chatml-json"),
    "--tokenizer": ("--tokenizer", "/somewhere"),
    "--window": ("--window", "8192"),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_a_run_that_goes_on_cannot_have_is_refused_by_name(
    loaded: LoadedConfiguration, folder: RunFolder, name: str
) -> None:
    """Also where it says what holds anyway: the run may have been made with something else."""
    error = resumed(loaded, *KEPT[name], "--set", "pack_tokens=77")
    assert f"--resume takes no {name}." in error.cause
    assert error.code == ExitCode.USAGE


def test_they_are_named_together(loaded: LoadedConfiguration, folder: RunFolder) -> None:
    error = resumed(loaded, "--recipe", "apollo", "--no-masking", "--held-out", "a")
    assert "takes no --held-out, --no-masking, --recipe." in error.cause


def test_shards_cannot_take_the_place_of_what_was_written_in_one_piece(
    loaded: LoadedConfiguration, folder: RunFolder
) -> None:
    """The trainer would refuse it as well, when the run has the wrong setting already."""
    tiny.write_checkpoint(folder.checkpoints, 7, "plain")
    error = resumed(loaded, "--accelerate", "fsdp")
    assert "checkpoint-7 was written without shards" in error.cause
    assert "--set accelerate=" in error.next


ROWS: dict[str, tuple[tuple[str, ...], RowOptions]] = {
    "nothing was said": ((), RowOptions()),
    "some were": (
        ("--overlap", "paper", "--no-masking", "--window", "9"),
        RowOptions(overlap="paper", masking=False, window=9),
    ),
}


@pytest.mark.parametrize("case", ROWS)
def test_a_new_run_has_the_rows_that_an_export_would_have(case: str, tmp_path: Path) -> None:
    words, expected = ROWS[case]
    made = train_sft_commands._row_options_with_defaults(parsed(*words), Home(tmp_path))
    assert made == expected


@pytest.mark.parametrize("state", ["queued", "running"])
def test_a_run_that_the_daemon_has_is_left_as_it_is(
    loaded: LoadedConfiguration, daemon: Station, state: RunState
) -> None:
    daemon.person().ask(wire.StartTraining(request="r", run=RUN))
    daemon.recorder.report_training_state(RUN, state, "", start=state == "running")
    for more in ((), ("--alone",)):
        error = resumed(loaded, "--set", "pack_tokens=77", "--gpus", "0", *more)
        assert error.cause == f"The daemon has {RUN} already ({state})."
        assert f"train cancel {RUN}" in error.next


MINE: dict[str, tuple[bool, RunState]] = {
    "it failed": (False, "failed"),
    "it was cancelled": (False, "cancelled"),
    "it was killed beside the daemon": (True, "running"),
}


@pytest.mark.parametrize("case", MINE)
def test_a_run_that_nobody_has_goes_on(
    loaded: LoadedConfiguration, daemon: Station, case: str
) -> None:
    alone, state = MINE[case]
    daemon.person().ask(wire.StartTraining(request="r", run=RUN, alone=alone))
    daemon.recorder.report_training_state(RUN, state)
    assert create_run.request_resume(loaded, RUN, ["pack_tokens=77"]).recipe.pack_tokens == 77


def test_what_could_not_be_registered_changes_nothing(
    loaded: LoadedConfiguration, daemon: Station
) -> None:
    """Its family has had another base since."""
    folder = RunFolder(policy_and_run_files.training_run_folder(loaded.home, RUN))
    folder.write_spec(RunSpec(run=RUN, recipe=SftRecipe(base="/no/model"), base_hash="mine"))
    place = loaded.home.path / "policies" / "policy@2"
    place.mkdir(parents=True)
    (place / "lineage.json").touch()
    policy = PolicyRegistered(
        by="", name="policy@2", kind="lora", base="/other", base_hash="other", hash="h",
        folder="policy@2",
    )  # fmt: skip
    daemon.person().ask(wire.RegisterPolicy(request="p", policy=policy))
    assert "another base model" in resumed(loaded, "--set", "pack_tokens=77").cause
