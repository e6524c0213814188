"""Where a terminal's log lies is known once: what the host writes, every reader finds."""

from pathlib import Path

import pytest

from houston_daemon.hosts.terminals.terminal_log import TerminalLog
from houston_shared import terminal_log_files


def test_readers_find_the_segments_that_the_host_writes_in_order(tmp_path: Path) -> None:
    folder = terminal_log_files.terminals_folder(tmp_path, "r-1") / "main"
    folder.mkdir(parents=True)
    log = TerminalLog(folder)
    for words in (b"first ", b"second ", b"third"):
        log.begin_segment(words)
    (folder / "log.orphan").write_bytes(b"of somebody else")
    assert [offset for offset, _ in terminal_log_files.list_segments(folder)] == [0, 6, 13]
    assert b"".join(terminal_log_files.read_log_blocks(folder, 2, 15)) == b"rst second th"
    assert terminal_log_files.terminals_with_log(folder.parent) == ["main"]


@pytest.mark.parametrize("name", ["", ".", "..", "../r-2/main", "a/b", "a\0b"])
def test_a_name_from_a_record_leads_nowhere_else(name: str) -> None:
    assert not terminal_log_files.is_terminal_name(name)
    assert terminal_log_files.is_terminal_name("main_2-x")
