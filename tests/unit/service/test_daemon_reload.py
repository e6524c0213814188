"""Files that people edit while the daemon runs: whatever their check does, the daemon goes on."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from houston_daemon.service.daemon_reload import EditReloader
from houston_shared.config import load_configuration
from houston_shared.errors import ConfigurationError


def refuse() -> str:
    raise ConfigurationError("no such tool")


def fail() -> str:
    return str(int("many"))


def cannot_read() -> str:
    raise PermissionError(13, "Permission denied", "notes.md")


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (refuse, "no such tool"),
        (fail, "ValueError: invalid literal"),
        (cannot_read, "PermissionError: [Errno 13] Permission denied: 'notes.md'"),
    ],
)
def test_what_is_wrong_is_a_trouble_until_it_is_mended(
    tmp_path: Path, check: Callable[[], str], words: str
) -> None:
    nobody: Any = None
    engines: Any = SimpleNamespace(edited_in_use=())
    loaded = load_configuration(str(tmp_path / "home"), None)
    edits = EditReloader(loaded, nobody, nobody, engines, nobody, lambda: None)
    edits._check("task one", check)
    assert edits.troubles()["task one"].startswith(words)
    edits._check("task one", lambda: "new rollouts start with it")
    assert edits.troubles() == {}
    edits.close()
