"""Reading commands where something of the home is damaged: what can be shown is, the rest named."""

from pathlib import Path

import pytest

from houston_daemon.recorder.journal_writer import EventKey
from houston_shared.store.event_bodies import BodiesErased, RolloutCleaned
from tests.support.written_home import WrittenHome
from tests.unit.commands.conftest import Houston


@pytest.mark.parametrize("kind", ["erased", "spec", "cleaned"])
def test_a_damaged_body_is_named_where_it_is_needed_and_nowhere_else(
    kind: str, written: WrittenHome, houston: Houston
) -> None:
    """It was a fault of Houston, also of `rollout list`, which nobody could read any more."""
    written.rollout("words-aaaa")
    key = EventKey("words-aaaa")
    erased = BodiesErased(by="person:ada", seqs=(), remainders=(), archive="/archives/a.zip")
    written.event(key, "erased", erased)
    written.event(key, "cleaned", RolloutCleaned(by="person:ada", bytes=0))
    rows = written.connection.execute("SELECT max(seq) FROM events WHERE kind = ?", (kind,))
    ((seq,),) = rows.fetchall()
    written.connection.execute("UPDATE events SET body = x'c1' WHERE seq = ?", (seq,))
    listed = houston("rollout", "list")
    assert (listed.code, listed.err.count("fault")) == (0, 0)
    assert "words-aaaa" in listed.out
    shown = houston("rollout", "show", "words")
    assert shown.code == 1
    assert f"Event {seq} of the journal ({kind}) cannot be read" in shown.err
    assert "next: houston verify" in shown.err


LIMIT_NOTES = {
    "as its host writes it": (b'{"mechanism": "cgroup"}', "cgroup"),
    "empty after a power cut": (b"", ""),
    "of another shape": (b"[]", ""),
    "without what is looked for": (b"{}", ""),
}


@pytest.mark.parametrize("case", LIMIT_NOTES)
def test_a_note_of_limits_that_is_damaged_says_nothing(
    case: str, written: WrittenHome, houston: Houston, tmp_path: Path
) -> None:
    note, shown = LIMIT_NOTES[case]
    written.rollout("r9", host_root=str(tmp_path / "agents"))
    folder = tmp_path / "agents" / "limits"
    folder.mkdir(parents=True)
    (folder / "r9.json").write_bytes(note)
    output = houston("rollout", "show", "r9", "--json")
    assert output.code == 0
    assert output.lines[0]["limited_by"] == shown
