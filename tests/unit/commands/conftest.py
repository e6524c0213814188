from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from houston_shared.command import main
from tests.support.written_home import WrittenHome


class Said(NamedTuple):
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Standard output as JSON Lines."""
        import json

        return [json.loads(line) for line in self.out.splitlines()]


Houston = Callable[..., Said]


@pytest.fixture
def written(tmp_path: Path) -> Iterator[WrittenHome]:
    home = WrittenHome(tmp_path / "home")
    yield home
    home.close()


@pytest.fixture
def houston(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Houston:
    """Runs `houston WORDS…` on the test's home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOUSTON_HOME", str(tmp_path / "home"))

    def run(*words: str) -> Said:
        capsys.readouterr()
        try:
            code = main(words)
        except SystemExit as stop:  # argparse, for wrong usage
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return Said(code, captured.out, captured.err)

    return run
