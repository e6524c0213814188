"""Which Python a sandbox shows."""

import sys
from pathlib import Path

import pytest

from houston_daemon.hosts.sandbox.sandbox_profile import find_python_folders


def test_python_is_found_behind_the_script_of_a_version_manager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path(sys.base_prefix) / "bin"
    monkeypatch.setenv("PATH", f"{real}:/usr/bin:/bin")
    found = find_python_folders.__wrapped__()
    script = tmp_path / "python3"
    script.write_text(f'#!/bin/sh\nexec {real}/python3 "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert find_python_folders.__wrapped__() == found
    assert str(tmp_path) not in found
