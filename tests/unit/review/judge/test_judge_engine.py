"""A judge's engine: found where it runs, started where it does not, ended only if it is ours."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from houston_daemon.engines.engine_process import process_start_time
from houston_daemon.review.judge.judge_engine import JudgeEnginePlace
from houston_daemon.service.engine_endpoints import state_file
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.config_sections import DaemonSettings
from houston_shared.engine_settings import EngineSettings
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.home import Home

ROOT = Path(__file__).parents[4]
ORPHAN_SECONDS = 1.0


def loaded(folder: Path, **engine: object) -> LoadedConfiguration:
    """A home with an engine `v` whose server is a real one that says it is well."""
    site = folder / "site"
    site.mkdir(exist_ok=True)
    (site / "health").touch()
    serve = (sys.executable, "-m", "http.server", "{port}", "-d", str(site))
    settings = EngineSettings(kind="vllm", **{"command": serve, **engine})  # type: ignore[arg-type]
    daemon = DaemonSettings(engine_orphan_seconds=ORPHAN_SECONDS)
    configuration = Configuration(engines={"v": settings}, daemon=daemon)
    return LoadedConfiguration(configuration, Home(folder / "home"), "defaults")


def pid_of(config: LoadedConfiguration) -> int:
    """The server that the state file names; 0 where none is named."""
    file = state_file(config.home, "v")
    return int(file.read_text().partition('"pid":')[2].partition(",")[0]) if file.exists() else 0


def test_a_child_is_started_when_it_is_asked_for_and_ended_after(tmp_path: Path) -> None:
    config, notes = loaded(tmp_path), list[str]()
    with JudgeEnginePlace(config, "v", notes.append) as place:
        assert not place.running() and not notes, "nothing is started before it is needed"
        url = place.child_settings()["url"]
        pid = pid_of(config)
        with JudgeEnginePlace(config, "v", notes.append) as other:
            assert other.running() and other.child_settings()["url"] == url, (
                "one server, found by its state"
            )
        assert process_start_time(pid) is not None, "who did not start it does not end it"
    assert process_start_time(pid) is None and len(notes) == 1


def test_what_a_killed_command_left_is_found_by_the_next(tmp_path: Path) -> None:
    config = loaded(tmp_path)
    place = JudgeEnginePlace(config, "v", lambda _: None)
    url = place.child_settings()["url"]
    pid = pid_of(config)
    try:
        with JudgeEnginePlace(
            config, "v", lambda _: None
        ) as later:  # the first one's end never came
            assert later.running() and later.child_settings()["url"] == url
    finally:
        os.kill(pid, signal.SIGKILL)


COMMAND = """
import sys, time
from pathlib import Path
from houston_daemon.review.judge.judge_engine import JudgeEnginePlace
from tests.unit.review.judge.test_judge_engine import loaded
with JudgeEnginePlace(loaded(Path(sys.argv[1])), "v", print) as place:
    place.child_settings()
    print("it answers", flush=True)
    time.sleep(600)
"""


def test_the_engine_of_a_killed_command_ends_when_no_other_asks_it(tmp_path: Path) -> None:
    config = loaded(tmp_path)
    words = [sys.executable, "-c", COMMAND, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) as command:
        assert command.stdout is not None
        assert "it answers\n" in iter(command.stdout.readline, "")
        pid = pid_of(config)
        with JudgeEnginePlace(config, "v", print) as other:
            other.child_settings()
            command.kill()
            command.wait()
            time.sleep(3 * ORPHAN_SECONDS)
            assert process_start_time(pid) is not None, "somebody asks it"
    end = time.monotonic() + 60
    while process_start_time(pid) is not None:
        assert time.monotonic() < end, "it has ended by itself"
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ({"command": (sys.executable, "-c", "raise SystemExit('no such model')")}, "no such model"),
        ({"gpus": 2}, "needs GPUs that only the daemon can lease"),
    ],
)
def test_a_child_that_cannot_be_had_says_why(
    tmp_path: Path, engine: dict[str, object], words: str
) -> None:
    with (
        pytest.raises(HoustonError, match=words),
        JudgeEnginePlace(loaded(tmp_path, **engine), "v", lambda _: None) as place,
    ):
        place.child_settings()["url"]


def test_an_engine_that_plays_a_file_is_no_judge(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot judge"):
        JudgeEnginePlace(loaded(tmp_path), "script:x.jsonl", lambda _: None)
