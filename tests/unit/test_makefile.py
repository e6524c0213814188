"""Which torch `make` installs. pip is a stand-in: PyTorch's index cannot be had in a test."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CPU = "torch==2.13.0+cpu"
INDEX = "https://download.pytorch.org/whl/cpu"
PIP = """#!/bin/sh
echo "$*" >> "$PIP_LOG"
case "$*" in *{}*) exit 1;; esac
"""

TORCH = {
    "a GPU": ("nothing-fails", True, ["torch"], ""),
    "an own index has it": ("nothing-fails", False, [CPU], "the configured package index"),
    "PyTorch's index has it": (f"'-q {CPU}'", False, [CPU, INDEX], f"from {INDEX}"),
    "none has it": ("+cpu", False, [CPU, INDEX, "torch"], "5 GB with CUDA"),
}


@pytest.mark.parametrize("case", TORCH)
def test_the_cpu_build_is_taken_where_there_is_no_gpu(case: str, tmp_path: Path) -> None:
    fails, gpu, asked, expected_words = TORCH[case]
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    (tmp_path / "pyproject.toml").touch()
    bin_folder = tmp_path / ".venv/bin"
    bin_folder.mkdir(parents=True)
    programs = {bin_folder / "python": "#!/bin/sh\n", bin_folder / "pip": PIP.format(fails)}
    programs |= {tmp_path / "nvidia-smi": "#!/bin/sh\n"} if gpu else {}
    for program, text in programs.items():
        program.write_text(text)
        program.chmod(0o755)
    log = tmp_path / "pip.log"
    process = subprocess.run(
        ["make", "SYSTEM=", ".venv/bin/.base"],
        cwd=tmp_path,
        env={**os.environ, "PIP_LOG": str(log), "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert expected_words in process.stdout + process.stderr
    installs = [line for line in log.read_text().splitlines() if "torch" in line]
    words = [[word for word in ("torch", CPU, INDEX) if word in line.split()] for line in installs]
    expected = {INDEX: [CPU, INDEX]}
    assert words == [expected.get(word, [word]) for word in asked]
