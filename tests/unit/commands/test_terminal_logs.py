"""Commands that show what is in the logs of terminals, which lie beside the journal."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from houston_shared import secret_redaction, terminal_log_files
from houston_shared.records import ObservationBody, TerminalSpan
from houston_shared.terminal_log_files import segment_file, terminals_folder
from tests.support.written_home import WrittenHome, sample
from tests.unit.commands.conftest import Houston


def printed(written: WrittenHome, data: bytes) -> Path:
    """A rollout whose terminal printed that in its first step; its folder."""
    host = written.home.path.parent / "host"
    written.rollout("words-aaaa", host_root=str(host))
    folder = terminals_folder(host, "words-aaaa") / "main"
    folder.mkdir(parents=True)
    segment_file(folder, 0).write_bytes(data)
    span = TerminalSpan(host="local", terminal="main", start=0, end=len(data))
    written.step("words-aaaa", 1, sample(), (), ObservationBody(tail="", spans=(span,)))
    return folder


@pytest.fixture
def forgotten_secrets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A command says for its whole process what is secret; other tests know nothing of it."""
    monkeypatch.setenv(secret_redaction.SECRETS_VARIABLE, "")
    yield
    secret_redaction.process_redactor.cache_clear()


REFUSED_LOGS = {
    "a folder of somebody else": ("folder", PermissionError, "may not be read by this user"),
    "a log of somebody else": ("log", PermissionError, "may not be read by this user"),
    "a log that is removed": ("log", FileNotFoundError, "was removed while it was read"),
}


@pytest.mark.usefixtures("forgotten_secrets")
@pytest.mark.parametrize("case", REFUSED_LOGS)
def test_a_log_that_cannot_be_read_is_said_and_the_steps_go_on(
    case: str, written: WrittenHome, houston: Houston, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members of the home's group may read the journal, and no folder of its owner's host."""
    what, problem, words = REFUSED_LOGS[case]
    folder = printed(written, b"hello\r\n")
    written.step("words-aaaa", 2, sample("the next"))
    is_dir, list_segments = Path.is_dir, terminal_log_files.list_segments

    def refused_folder(path: Path) -> bool:
        if what == "folder" and path == folder:
            raise problem("refused")
        return is_dir(path)

    def refused_log(terminal: Path) -> list[tuple[int, Path]]:
        if what == "log":
            raise problem("refused")
        return list_segments(terminal)

    monkeypatch.setattr(Path, "is_dir", refused_folder)
    monkeypatch.setattr(terminal_log_files, "list_segments", refused_log)
    output = houston("steps", "words", "--printed")
    assert output.code == 0
    assert f"its log {words}" in output.out
    assert "the next" in output.out


SECRET = "hunter2-hunter2"


def name_secret(written: WrittenHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable whose name does not say that it holds one."""
    (written.home.path / "houston.toml").write_text('[secrets]\nnames = ["DOOR"]\n')
    monkeypatch.setenv("DOOR", SECRET)
    secret_redaction.process_redactor.cache_clear()


OF_TERMINALS = {
    "steps": ("steps", "words", "--printed"),
    "search": ("search", "--in", "terminals", "login"),
}


@pytest.mark.usefixtures("forgotten_secrets")
@pytest.mark.parametrize("case", OF_TERMINALS)
def test_secrets_that_the_configuration_names_are_not_shown_from_logs(
    case: str, written: WrittenHome, houston: Houston, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only variables whose names say so were taken out."""
    printed(written, f"login {SECRET}\r\n".encode())
    name_secret(written, monkeypatch)
    output = houston(*OF_TERMINALS[case])
    assert output.code == 0
    assert "login [secret:DOOR]" in output.out
    assert SECRET not in output.out


@pytest.mark.usefixtures("forgotten_secrets")
def test_the_console_knows_the_secrets_that_the_configuration_names(
    written: WrittenHome, houston: Houston, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("TEXTUAL_FPS", "TEXTUAL_COLOR_SYSTEM"):
        monkeypatch.setenv(variable, "")  # so that what the command sets is undone
    name_secret(written, monkeypatch)
    output = houston("console")
    assert (output.code, "needs a terminal" in output.err) == (2, True)
    assert secret_redaction.redact(SECRET) == "[secret:DOOR]"
