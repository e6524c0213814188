"""Task folders of Harbor: imported, run in their image or without, and scored by their tests."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.importers.container_image import copy_image_folder, find_container_engine
from houston_shared.errors import HoustonError
from houston_shared.task import load_task
from tests.support.small_image import MARK, make_root, make_tar
from tests.support.station import Station

TASK = """
schema_version = "1.4"
[task]
name = "houston/hello-world"
[metadata]
difficulty = "easy"
[verifier]
timeout_sec = 60.0
[verifier.env]
GREETING = "Hello, world!"
[agent]
timeout_sec = 90.0
[environment]
network_mode = "no-network"
memory_mb = 512
[environment.env]
MODE = "quick"
"""
DOCKERFILE = "FROM {base}\n# The folder of the task.\nWORKDIR /app\nCOPY notes.txt ./\n"
TESTS = """#!/bin/bash
touch built-by-the-tests || exit 1
if [ "$(cat /app/hello.txt)" = "$GREETING" ] && [ -f notes.txt ] && [ "$MODE" = quick ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""
INSTRUCTION = "<!-- harbor-canary GUID 1 -->\n\nWrite /app/hello.txt.\n"
WRITE = {"name": "create_file", "arguments": {"filename": "/app/hello.txt", "content": "{}\n"}}


def write_task(folder: Path, **files: str) -> Path:
    """A task folder; files: by path with `__` for `/` and `_DOT_` for a dot."""
    given = {
        "task_DOT_toml": TASK,
        "instruction_DOT_md": INSTRUCTION,
        "environment__Dockerfile": DOCKERFILE.format(base="ubuntu:24.04"),
        "environment__notes_DOT_txt": "a note\n",
        "tests__test_DOT_sh": TESTS,
        "solution__solve_DOT_sh": "#!/bin/bash\necho 'Hello, world!' > /app/hello.txt\n",
        **files,
    }
    for name, text in given.items():
        place = folder / name.replace("__", "/").replace("_DOT_", ".")
        place.parent.mkdir(parents=True, exist_ok=True)
        if text:
            place.write_text(text)
    return folder


def script(station: Station, command: str) -> str:
    look = {"name": "run_command", "arguments": {"command": command}}
    content = {"filename": "/app/hello.txt", "content": "Hello, world!\n"}
    write = {"name": "create_file", "arguments": content}
    finish = {"name": "finish", "arguments": {}}
    return station.script([{"thought": "", "calls": [call]} for call in (look, write, finish)])


def test_without_its_image_a_plain_task_runs_and_its_tests_score_it(station: Station) -> None:
    write_task(station.folder / "hello")
    words = ["task", "import", "hello", "--without-image", "--out", "made"]
    (told,) = station.json(*words)
    how = {one["field"]: one["how"] for one in told["fields"]}
    assert how["environment/Dockerfile"] == how["agent.timeout_sec"] == "approximately"
    assert how["metadata"] == how["solution/"] == "not mapped"
    assert not (station.folder / "made/solution").exists()
    task = load_task(station.folder / "made").task
    assert (task.name, task.mapped.workdir, task.mapped.network) == ("hello-world", "/app", False)
    assert (task.budget.active_seconds, task.budget.evaluations) == (90, 1)
    assert (task.mapped.memory_mb, task.environment_variables) == (512, {"MODE": "quick"})
    assert load_task(station.folder / "made").instructions == "Write /app/hello.txt.\n"
    (baseline,) = station.json("task", "validate", "made", "--run")
    assert "overall_score: 0 of 100" in baseline["evaluation"]
    station.start()
    (rollout,) = station.rollout(
        station.folder / "made/task.toml", script(station, "pwd; ls; ls /tests /solution")
    )
    shown = station.ended(rollout)
    looked, _, last = station.steps(rollout)
    assert "/app\nnotes.txt" in looked["observation"]
    assert looked["observation"].count("No such file or directory") == 2, "tests are not its own"
    assert "overall_score: 100" in last["observation"]
    assert (shown["state"], shown["best_score"]) == ("finished", 100)
    workspace = Path(shown["workspace"])
    assert sorted(os.listdir(workspace)) == ["hello.txt", "notes.txt"], "tests change a copy"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("image")
    return make_tar(make_root(folder / "root"), folder / "image.tar")


def run_in_image(station: Station, folder: str) -> None:
    """The rollout sees its image's programs only, may change them, and is scored in a copy."""
    command = (
        "cat /etc/small-image; touch /usr/mine && ls -d /usr/mine; ls /usr/bin/python3;"
        " mkdir -p /tests && echo false > /tests/test.sh; id -u"
    )
    station.start()
    (rollout,) = station.rollout(
        station.folder / folder / "task.toml", script(station, f"{command}; pwd; echo $HOME")
    )
    shown = station.ended(rollout)
    looked, _, last = station.steps(rollout)
    assert MARK in looked["observation"]
    assert "/usr/mine\n" in looked["observation"]
    assert "cannot access '/usr/bin/python3'" in looked["observation"]
    assert "\n0\n/app\n/root" in looked["observation"]
    assert "overall_score: 100" in last["observation"]
    assert (shown["state"], shown["best_score"]) == ("finished", 100)
    root = Path(shown["workspace"]).parent / "image"
    assert (root / "usr/mine").exists()
    assert sorted(os.listdir(root / "tests")) == ["test.sh"], "the tests were in a copy"
    assert (root / "tests/test.sh").read_text() == "false\n"


def test_a_rollout_has_its_own_copy_of_an_image(station: Station, image: Path) -> None:
    """An image that is there is used wherever the task goes; no engine is needed any more."""
    write_task(station.folder / "hello")
    station.json("task", "import", "hello", "--without-image", "--out", "made")
    file = station.folder / "made/task.toml"
    text = file.read_text().replace("[sandbox]\n", '[sandbox]\nimage = "image.tar"\n')
    file.write_text(text)
    refused = station.run("task", "validate", "made", code=78).stderr
    assert "names 'image.tar', which does not exist" in refused
    (station.folder / "made/image.tar").write_bytes(image.read_bytes())
    run_in_image(station, "made")


@pytest.mark.skipif(not find_container_engine(), reason="neither podman nor docker works here")
def test_an_engine_builds_the_image_that_a_task_runs_in(station: Station, image: Path) -> None:
    engine = find_container_engine()
    base = "localhost/houston-test-base:latest"
    subprocess.run([engine, "import", str(image), base], check=True, capture_output=True)
    folder = station.folder / "hello"
    write_task(folder, environment__Dockerfile=DOCKERFILE.format(base=base))
    (told,) = station.json("task", "import", "hello", "--out", "made")
    said = {one["field"]: one["said"] for one in told["fields"]}
    assert said["environment/Dockerfile"].startswith("image.tar, by ")
    assert (station.folder / "made/workspace/notes.txt").read_text() == "a note\n"
    run_in_image(station, "made")


NO_ENGINE = {"DOCKER_HOST": "unix:///nowhere.sock"}


@pytest.mark.parametrize(
    ("files", "flag", "cause"),
    [
        pytest.param({}, "", "runs in an image (environment/Dockerfile), and", id="no engine"),
        pytest.param(
            {"task_DOT_toml": TASK + '[[steps]]\nname = "one"\n'},
            "",
            "it has several steps",
            id="steps",
        ),
        pytest.param(
            {"environment__docker-compose_DOT_yaml": "services: {}\n"},
            "",
            "it runs several containers (environment/docker-compose.yaml)",
            id="compose",
        ),
        pytest.param(
            {"task_DOT_toml": TASK.replace("memory_mb = 512", 'os = "windows"')},
            "",
            "it runs on windows",
            id="windows",
        ),
        pytest.param({"tests__test_DOT_sh": ""}, "", "it has no tests/test.sh", id="no tests"),
        pytest.param(
            {
                "task_DOT_toml": TASK.replace(
                    "timeout_sec = 60.0", 'environment_mode = "separate"'
                ),
                "tests__Dockerfile": "FROM python:3.12\nRUN pip install pytest\nCOPY . /tests/\n",
            },
            "",
            "its tests run in an image of their own",
            id="separate verifier",
        ),
        pytest.param(
            {"environment__Dockerfile": "FROM ubuntu\nRUN apt-get install -y gcc\n"},
            "--without-image",
            "does more than copy files (RUN apt-get install -y gcc)",
            id="not plain",
        ),
        pytest.param(
            {
                "task_DOT_toml": TASK.replace("memory_mb = 512", 'docker_image = "x/y:1"'),
                "environment__Dockerfile": "",
            },
            "--without-image",
            "what it needs is not known",
            id="image by name",
        ),
        pytest.param(
            {"instruction_DOT_md": "\n"}, "", "instruction.md is empty", id="nothing asked"
        ),
        pytest.param(
            {"environment__Dockerfile": DOCKERFILE.format(base="u") + "ENV KEY=[secret:API_KEY]\n"},
            "--without-image",
            "sets KEY to the secret API_KEY of the user who runs it",
            id="a secret in its Dockerfile",
        ),
        pytest.param(
            {"task_DOT_toml": f'{TASK}KEY = "[sec${{NONE:-ret:API_KEY}}]"\n'},
            "--without-image",
            "sets KEY to the secret API_KEY of the user who runs it",
            id="a secret among its variables",
        ),
        pytest.param(
            {"task_DOT_toml": TASK.replace("memory_mb = 512", 'docker_image = "--pidfile=/x"')},
            "",
            "not an image name",
            id="an option as its image",
        ),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence(
    station: Station, files: dict[str, str], flag: str, cause: str, tmp_path: Path
) -> None:
    write_task(station.folder / "hello", **files)
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "podman").write_text("#!/bin/sh\nexit 1\n")  # one that does not work
    (programs / "podman").chmod(0o755)
    station.environment |= {**NO_ENGINE, "PATH": f"{programs}:{os.environ['PATH']}"}
    words = [word for word in ("task", "import", "hello", flag) if word]
    done = station.run(*words, code=1)
    assert cause in done.stderr
    assert "Nothing was imported." in done.stderr
    assert not (station.folder / "hello-world").exists()


@pytest.mark.parametrize(
    ("workdir", "cause"),
    [
        ("--to-command=touch {}", "not an absolute path"),
        ("/--to-command=touch {}", "Not found in archive"),
    ],
)
def test_a_working_folder_is_no_option_of_tar(
    image: Path, tmp_path: Path, workdir: str, cause: str
) -> None:
    place = workdir.format(tmp_path / "ran")
    with pytest.raises(HoustonError, match=cause):
        copy_image_folder(image, place, tmp_path / "workspace")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["instruction.md", "environment/notes.txt", "tests"])
def test_a_link_out_of_the_task_brings_nothing_in(station: Station, name: str) -> None:
    folder = write_task(station.folder / "hello")
    place, outside = folder / name, station.folder / "outside"
    place.rename(outside)
    place.symlink_to(outside)
    refused = station.run("task", "import", "hello", "--without-image", code=1).stderr
    assert "is a link that leads out of" in refused
    assert not (station.folder / "hello-world").exists()


def test_where_the_image_only_copies_files_the_other_way_is_named(station: Station) -> None:
    write_task(station.folder / "hello")
    station.environment |= {**NO_ENGINE, "PATH": "/usr/bin/nowhere"}
    refused = station.run("task", "import", "hello", code=1).stderr
    assert "neither podman nor docker works on this machine" in refused
    assert "houston task import --without-image DIR runs it in the ordinary sandbox" in refused


@pytest.mark.slow
@pytest.mark.parametrize(
    ("writes", "shows"),
    [
        pytest.param("echo 0.5 > reward.txt", "overall_score: 50 of 100", id="a part"),
        pytest.param("printf '  1.0\\n' > reward.txt", "overall_score: 100", id="white space"),
        pytest.param(
            'echo \'{"style": 0.25, "reward": 1e-1}\' > reward.json', "overall_score: 10", id="json"
        ),
        pytest.param("echo '{\"only\": 1}' > reward.json", "overall_score: 100", id="one member"),
        pytest.param(
            'echo \'{"a": 1, "b": 0}\' > reward.json', "the evaluator failed", id="two members"
        ),
        pytest.param("echo fine > reward.txt", "the evaluator failed", id="no number"),
        pytest.param("exit 3", "the evaluator failed", id="no reward"),
    ],
)
def test_rewards_are_read_as_harbor_reads_them(station: Station, writes: str, shows: str) -> None:
    tests = f"#!/bin/bash\ncd /logs/verifier\n{writes}\n"
    write_task(station.folder / "hello", tests__test_DOT_sh=tests)
    station.json("task", "import", "hello", "--without-image", "--out", "made")
    done: Any = station.run("task", "validate", "made", "--run", code=None)
    assert shows.lower() in done.stdout.lower(), done.stdout
