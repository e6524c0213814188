"""The environments of consumers, and their programs run in them.

`make test-consumers` makes the environments and names their folder; a consumer that cannot be had
ends there. A program prints one line of JSON, the last of its output.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent
SECONDS = 1_200
"""A program may take that long: it imports torch and its consumer on a busy machine."""


def python_of(consumer: str) -> Path:
    """The Python of a consumer's environment."""
    place = os.environ.get("HOUSTON_CONSUMERS", "")
    python = Path(place, consumer, "bin", "python")
    if not place or not python.is_file():
        raise AssertionError(
            f"There is no environment of {consumer} in {place or 'HOUSTON_CONSUMERS'}, so nothing"
            f" was proved: make test-{'harbor' if consumer == 'harbor' else 'consumers'} makes it"
        )
    return python


def run_in(consumer: str, program: str, *words: str | Path) -> Any:
    """What a program of this folder prints, run by the environment of a consumer."""
    python = python_of(consumer)
    hidden = {"PYTHONPATH", "VIRTUAL_ENV", "HOUSTON_HOME"}
    done = subprocess.run(
        [python, PROGRAMS / program, *words],
        env={name: value for name, value in os.environ.items() if name not in hidden}
        | {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "DISABLE_VERSION_CHECK": "1"},
        cwd=words[0],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{program} in {consumer}:\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])
