"""No probe of an agent's gets out of its sandbox, and none changes anything outside."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.importers.container_image import export_image, find_container_engine
from tests.security.escape_probes import PROBES
from tests.support.small_image import make_root, make_tar
from tests.support.tiers import sampled

NOBODY = 65534


def test_there_are_as_many_probes_as_were_promised() -> None:
    assert len(PROBES) >= 40


@pytest.mark.parametrize("user", sampled(["the user of the tests", "an ordinary user"], 1))
def test_nothing_that_an_agent_tries_gets_out(user: str) -> None:
    number = os.getuid()
    if user == "an ordinary user":
        if number != 0:
            pytest.skip("needs root to become another user")
        number = NOBODY
    told = attempt(number)
    assert told["failed"] == {}
    assert told["ran"] > 2 * len(PROBES)


@pytest.mark.slow
def test_nothing_gets_out_of_an_image_either(tmp_path: Path) -> None:
    """Podman's or docker's where one works, else the same files by our own hand."""
    image = make_tar(make_root(tmp_path / "root"), tmp_path / "image.tar")
    if engine := find_container_engine():
        name = "localhost/houston-test-escapes:1"
        subprocess.run([engine, "import", str(image), name], check=True, capture_output=True)
        image.unlink()
        export_image(engine, name, image)
        subprocess.run([engine, "rmi", "--force", name], check=False, capture_output=True)
    told = attempt(os.getuid(), str(image))
    assert told["failed"] == {}
    assert told["ran"] > 100


def attempt(number: int, *image: str) -> dict[str, Any]:
    """What the probes got, tried by a user. image: the tar file of one, if any."""
    place = Path(tempfile.mkdtemp(prefix="houston-escapes-", dir="/tmp"))
    os.chown(place, number, number if number else 0)
    command = [sys.executable, "-m", "tests.security.escapes", str(place), str(number), *image]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told
