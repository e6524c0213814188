"""What is edited while the daemon runs takes effect, or is refused with a sentence and changes
nothing: houston.toml, task files and recipes, with the real daemon and real files."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.station import Station
from tests.support.tiers import sampled

LOOK = {"thought": "look", "calls": [{"name": "list_files", "arguments": {"path": "."}}]}


def trouble(station: Station, name: str = "configuration") -> str:
    (status,) = station.json("daemon", "status")
    return str(status["troubles"].get(name, ""))


def log(station: Station) -> str:
    return (station.home / "logs/daemon.log").read_text()


def edit(file: Path, text: str) -> None:
    """As editors do: another file takes the place of the old one."""
    beside = file.with_suffix(".swp")
    beside.write_text(text)
    os.replace(beside, file)


@pytest.fixture
def settings(station: Station) -> Path:
    station.home.mkdir(exist_ok=True)
    file = station.home / "houston.toml"
    file.write_text("[daemon]\nmax_rollouts = 1\n")
    station.start()
    return file


def test_an_edit_takes_effect_without_a_restart(station: Station, settings: Path) -> None:
    script = station.script([{**LOOK, "delay": 60}])
    first, second = (station.rollout(station.task(), script)[0] for _ in range(2))
    station.until(lambda: station.show(first)["state"] == "running")
    assert station.show(second)["state"] == "queued"
    pid = station.pid
    edit(settings, "[daemon]\nmax_rollouts = 2\n")
    station.until(lambda: station.show(second)["state"] == "running")
    assert "configuration was edited: daemon.max_rollouts in force" in log(station)
    assert trouble(station) == ""
    assert f"already running (pid {pid}" in station.run("daemon", "start").stdout


REFUSED = {
    "half of a file": ("[daemon]\nmax_rollouts = 2\n[hos", "line 3"),
    "a wrong key": ("[daemon]\nmax_rollout = 2\n", "max_rollout"),
    "a wrong value": ("[daemon]\nmax_rollouts = 0\n", "daemon.max_rollouts"),
    "nobody": ('[roles]\noperators = ["no-such-user"]\n', "no-such-user"),
}


@pytest.mark.parametrize("case", sampled(REFUSED, 1))
def test_what_is_wrong_is_refused_and_the_old_one_stays(
    case: str, station: Station, settings: Path
) -> None:
    text, said = REFUSED[case]
    settings.write_text(text)  # in its own place, too
    station.until(lambda: trouble(station))
    assert said in trouble(station)
    assert "The earlier configuration stays in force." in trouble(station)
    shown = station.run("daemon", "status").stdout
    assert "trouble   configuration: " in shown
    assert said in log(station)
    edit(settings, "[daemon]\nmax_rollouts = 3\n")
    station.until(lambda: not trouble(station))
    assert "daemon.max_rollouts in force" in log(station), "read again when it is whole"


@pytest.mark.slow
def test_a_file_that_goes_keeps_what_it_said(station: Station, settings: Path) -> None:
    settings.unlink()
    station.until(lambda: "is gone" in trouble(station))
    edit(settings, "[daemon]\nmax_rollouts = 1\n")
    station.until(lambda: not trouble(station))


def test_what_needs_a_restart_is_named(station: Station, settings: Path) -> None:
    edit(settings, "[daemon]\nmax_rollouts = 1\nlog_mb = 7\n[hosts]\ngpus = 1\n")
    station.until(lambda: trouble(station))
    assert "daemon.log_mb, hosts.gpus: in force after `houston daemon restart`" in trouble(station)
    station.run("daemon", "restart")
    assert trouble(station) == ""


@pytest.mark.slow
def test_a_file_that_was_not_there_is_taken(station: Station) -> None:
    station.start()
    edit(station.home / "houston.toml", "[daemon]\nmax_rollouts = 0\n")
    station.until(lambda: "max_rollouts" in trouble(station))


def listed(station: Station) -> dict[str, Any]:
    (row,) = station.json("task", "list")
    return dict(row)


def test_an_edited_task_is_checked_at_once(station: Station, settings: Path) -> None:
    task = station.task()
    text = task.read_text()
    (rollout,) = station.rollout(task, station.script([LOOK]))
    station.ended(rollout)
    name = listed(station)["task"]
    assert (listed(station)["edited"], listed(station)["problem"]) == (False, "")
    station.until(lambda: _is_followed(station, task))
    edit(task, f"{text}\nsteps = 'many'\n")
    assert "steps" in listed(station)["problem"]
    assert "broken: " in station.run("task", "list").stdout
    station.until(lambda: trouble(station, f"task {name}"))
    edit(task, f"# another\n{text}")
    station.until(lambda: not trouble(station, f"task {name}"))
    assert f"task {name} was edited: new rollouts start with it" in log(station)
    assert (listed(station)["edited"], listed(station)["problem"]) == (True, "")
    assert "changed" in station.run("task", "list").stdout
    station.rollout(task, station.script([LOOK]))
    assert listed(station)["edited"] is False


def _is_followed(station: Station, task: Path) -> bool:
    """Whether the daemon watches the task's folder: it has an inotify watch there."""
    inode = task.parent.stat().st_ino
    watches = "".join(
        file.read_text() for file in Path(f"/proc/{station.pid}/fdinfo").iterdir() if file.exists()
    )
    return f"ino:{inode:x} " in watches


def test_a_recipe_is_checked_as_it_is_written(station: Station, settings: Path) -> None:
    folder = station.home / "recipes"
    folder.mkdir()
    (folder / "mine.toml").write_text("epochs = 'many'\n")
    station.until(lambda: "epochs" in trouble(station, "recipe mine"))
    edit(folder / "mine.toml", "epochs = 2\n")
    station.until(lambda: not trouble(station, "recipe mine"))
    assert "recipe mine was edited: new runs of training start with it" in log(station)
