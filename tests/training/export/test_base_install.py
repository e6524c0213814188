"""Exporting runs on the base install: no torch, no datasets, and pyarrow only for parquet."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from houston_daemon.training.export import export_files
from houston_shared.errors import ExitCode, HoustonError
from tests.training.export.talk import talk
from tests.training.export.writing import written

HEAVY = {"torch", "transformers", "trl", "peft", "datasets", "pyarrow", "pandas", "numpy"}


def test_the_command_imports_nothing_heavy() -> None:
    code = (
        "import json, sys, houston_daemon.commands.export_commands;"
        " print(json.dumps(list(sys.modules)))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not {name.partition(".")[0] for name in json.loads(process.stdout)} & HEAVY


def test_without_pyarrow_parquet_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_files, "find_spec", lambda name: None)
    with pytest.raises(HoustonError, match="pyarrow") as refused:
        export_files.check_parquet()
    assert refused.value.code == ExitCode.CONFIGURATION
    assert "houston-agents[train]" in refused.value.next


def test_what_is_written_is_json_of_any_reader(tmp_path: Path) -> None:
    file, _ = written("slime", [talk()], tmp_path)
    assert [json.loads(line)["metadata"]["row"] for line in file.open()] == ["r-1/0.0"]
