"""No probe of an agent's gets out of its sandbox, and none changes anything outside."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.security.escape_probes import PROBES
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
    place = Path(tempfile.mkdtemp(prefix="houston-escapes-", dir="/tmp"))
    os.chown(place, number, number if number else 0)
    command = [sys.executable, "-m", "tests.security.escapes", str(place), str(number)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["failed"] == {}
    assert told["ran"] > 2 * len(PROBES)
