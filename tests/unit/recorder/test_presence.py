"""Presence is counted once, ends by silence and idleness, and tells where a person was before."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.recorder.identity_and_roles import Author
from houston_daemon.recorder.live_workers import LiveWorkers
from houston_daemon.recorder.recorder_store import PresenceTracker, Store
from houston_shared.store import presence_queries
from houston_shared.store.presence_queries import LastSeen, Person, PresenceRow
from houston_shared.store.store_reader import Reader
from houston_shared.wire import ReportPresence
from tests.support.written_home import WrittenHome

EPOCH = 1_700_000_000_000_000
ADA = Person("ada", 1000)


class Desk:
    """A home with two rollouts, people with consoles, and a clock that is set by hand."""

    def __init__(self, path: Path) -> None:
        self.written = WrittenHome(path)
        self.now = 0.0
        for name in ("one", "two"):
            self.written.rollout(name)
        self.restart()

    def restart(self) -> None:
        """As after a kill: what was only in memory is gone."""
        self.presence = PresenceTracker(lambda: self.now, lambda: self.at)
        self.store = Store(
            self.written.home, self.written.connection, self.written.journal, LiveWorkers(),
            presence=self.presence,
        )  # fmt: skip

    @property
    def at(self) -> int:
        return EPOCH + round(self.now * 1e6)

    def says(
        self, rollout: str, active: bool = True, step: int = 0, person: Person = ADA, pid: int = 1
    ) -> None:
        author = Author(person.name, person.uid, True, pid, "annotator")
        message = ReportPresence(rollout=rollout, step=step, active=active)
        self._transaction(lambda: self.presence.note(self.store, message, author))

    def looks_at(self, rollout: str, seconds: float, every: float = 10.0, **more: Any) -> None:
        """Say so now and every few seconds, for so long."""
        end = self.now + seconds
        self.says(rollout, **more)
        while self.now + every <= end:
            self.now += every
            self.says(rollout, **more)
            if self.presence.due():
                self.write()

    def write(self) -> None:
        if self.presence.due(last=True):
            self._transaction(lambda: self.presence.write(self.store))

    def _transaction(self, act: Any) -> None:
        self.written.connection.execute("BEGIN")
        act()
        self.written.connection.execute("COMMIT")
        for change in self.store.after_commit:
            change()
        self.store.after_commit.clear()

    def look(self, rollout: str = "one", person: Person = ADA) -> PresenceRow:
        self.write()
        with Reader(self.written.home) as reader:
            found = reader.run(presence_queries.find_presence(rollout, person))
        assert found is not None
        return found

    def seen(self, rollout: str = "one", person: Person = ADA) -> LastSeen | None:
        self.write()
        with Reader(self.written.home) as reader:
            return reader.run(presence_queries.read_last_seen(rollout, person, self.at))

    def step(self) -> int:
        """Something happens in rollout `one`; its newest sequence."""
        self.written.step("one", self.written.connection.execute(
            "SELECT coalesce(max(step), 0) + 1 FROM steps").fetchone()[0])  # fmt: skip
        return self.written.seq


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path / "home")
    yield made
    made.written.close()


def test_minutes_are_counted_while_somebody_looks_and_is_there(desk: Desk) -> None:
    desk.looks_at("one", 120)
    desk.looks_at("one", 60, active=False)
    look = desk.look()
    assert (look.looked_us, look.active_us, look.visits) == (180_000_000, 120_000_000, 1)


def test_two_consoles_of_one_person_count_once(desk: Desk) -> None:
    desk.says("one", pid=1)
    desk.says("one", pid=2)
    for _ in range(6):
        desk.now += 5.0
        desk.says("one", pid=1)
        desk.now += 5.0
        desk.says("one", pid=2)
    look = desk.look()
    assert (look.looked_us, look.active_us) == (60_000_000, 60_000_000)


def test_the_time_until_one_turns_away_counts_and_then_no_more(desk: Desk) -> None:
    desk.says("one")
    desk.now += 12.0
    desk.says("two")
    desk.now += 300.0
    desk.says("")
    look = desk.look("one")
    assert (look.looked_us, look.here) == (12_000_000, 0)
    assert desk.look("two").looked_us == 0, "five minutes of silence are no looking"


def test_since_you_were_here_is_where_the_visit_before_ended(desk: Desk) -> None:
    assert desk.seen() is None
    first = desk.step()
    desk.looks_at("one", 60, step=1)
    assert desk.seen() is None, "the first visit has none before it"
    desk.now += 3600
    desk.step()
    assert desk.seen() == LastSeen(first, 1, EPOCH + 60_000_000), "asked before it says a word"
    desk.looks_at("one", 30, step=2)
    assert desk.seen() == LastSeen(first, 1, EPOCH + 60_000_000), "and during the visit"


def test_a_console_left_open_over_night_has_read_nothing(desk: Desk) -> None:
    first = desk.step()
    desk.looks_at("one", 60, step=1)
    for _ in range(8):
        desk.step()
        desk.looks_at("one", 3600, every=15.0, active=False, step=1)
    assert desk.look().active_us == 60_000_000
    desk.looks_at("one", 30, step=9)
    assert desk.seen() == LastSeen(first, 1, EPOCH + 60_000_000)
    assert desk.look().visits == 2


def test_a_glance_elsewhere_ends_no_visit(desk: Desk) -> None:
    desk.looks_at("one", 60)
    desk.looks_at("two", 20)
    desk.looks_at("one", 60)
    assert desk.look().visits == 1
    assert desk.look().here == 1
    assert desk.look("two").here == 0


def test_a_daemon_that_died_ends_no_visit_and_forgets_seconds(desk: Desk) -> None:
    desk.looks_at("one", 60)
    desk.restart()
    desk.now += 10
    desk.looks_at("one", 60)
    look = desk.look()
    assert look.visits == 1
    assert 100_000_000 <= look.looked_us <= 130_000_000


def test_it_is_written_seldom_and_costs_no_event(desk: Desk) -> None:
    events, written = desk.written.seq, 0
    changes = desk.written.connection.total_changes
    desk.says("one")
    assert desk.written.connection.total_changes > changes, "a visit begins: at once"
    for _ in range(100):
        desk.now += 1.0
        desk.says("one")
        if desk.presence.due():
            desk.write()
            written += 1
    assert written <= 20
    assert desk.written.seq == events
    with Reader(desk.written.home) as reader:
        looks = reader.run(presence_queries.list_presence())
        assert [(look.rollout, look.name) for look in looks if look.looks(desk.at)] == [
            ("one", "ada")
        ]
        assert not [look for look in looks if look.looks(desk.at + 60_000_000)]


def test_what_a_rolled_back_batch_took_is_written_with_the_next(desk: Desk) -> None:
    desk.says("one")
    desk.now += 10
    desk.says("one")
    connection = desk.written.connection
    connection.execute("BEGIN")
    desk.presence.write(desk.store)
    connection.execute("ROLLBACK")
    desk.store.after_commit.clear()
    assert desk.look().looked_us == 10_000_000


def test_people_of_one_login_and_one_name_are_told_apart(desk: Desk) -> None:
    other = Person("ada", 1001)
    desk.looks_at("one", 60)
    desk.looks_at("one", 30, person=other, pid=9)
    assert desk.look().looked_us == 60_000_000
    assert desk.look(person=other).looked_us == 30_000_000


def test_a_rollout_that_is_none_leaves_no_row(desk: Desk) -> None:
    desk.looks_at("nowhere", 60)
    desk.write()
    assert desk.written.connection.execute("SELECT count(*) FROM looks").fetchone() == (0,)
