"""Exporting runs on the base install: no torch, no datasets, and pyarrow only for parquet."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from houston_daemon.training.export import export_files
from houston_daemon.training.export.export_format import ExportFormat
from houston_daemon.training.export.llama_factory_format import LLAMA_FACTORY
from houston_daemon.training.export.trl_format import TRL
from houston_shared.errors import ExitCode, HoustonError
from tests.training.export.chat_rows import talk
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


@pytest.mark.parametrize(
    ("format", "cause"),
    [(TRL, "Parquet needs pyarrow"), (LLAMA_FACTORY, "The format llama-factory needs pyarrow")],
)
def test_without_pyarrow_it_says_what_to_install(
    format: ExportFormat, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_files, "find_spec", lambda name: None)
    with pytest.raises(HoustonError, match=cause) as refused:
        export_files.check_parquet(format)
    assert refused.value.code == ExitCode.CONFIGURATION
    assert "houston-agents[train]" in refused.value.next


def test_what_is_written_is_json_of_any_reader(tmp_path: Path) -> None:
    file, _ = written("slime", [talk()], tmp_path)
    assert [json.loads(line)["metadata"]["row"] for line in file.open()] == ["r-1/0.0"]
