"""Finding words in a rollout: counts, jumps, marks; with the index and without it."""

import sqlite3

from houston_console.app.transcript.searching import Search
from tests.console.conftest import Seat, Sit
from tests.console.homes import HomeBuilder


def _home(builder: HomeBuilder) -> None:
    with builder.bulk():
        builder.start("r")
        builder.start("other")
        builder.whole("other", 1, "the needle of another rollout")
        for number in range(1, 301):
            if number == 200:
                builder.say("r", "g", "a Needle from a person")
            text = "first line\nsecond: needle in output" if number in (40, 41) else "hay"
            thought = "needle in thought" if number == 120 else f"thought {number}"
            call = ("run_command", {"command": "grep needle x" if number == 280 else "ls"})
            builder.whole("r", number, thought, (call,), (text,))


async def _find(seat: Seat, words: str) -> None:
    await seat.press("2", "slash")
    await seat.write(words)
    await seat.press("enter")
    area = seat.app.watching.trajectory
    await seat.until(
        lambda: area.search and area.search.query == words and not area.searching, "found all"
    )
    await seat.press()


async def test_hits_are_counted_and_visited_in_order(builder: HomeBuilder, sit: Sit) -> None:
    _home(builder)
    async with sit(builder.home, "r") as seat:
        await _find(seat, "needle")
        assert seat.transcript.hits == [40, 41, 120, 200, 280]
        assert seat.transcript.cursor == 280  # the nearest before the end
        await seat.until(lambda: "/needle  5/5" in seat.frame("#trajectory"), "the count")
        visited = []
        for _ in range(3):
            await seat.press("n")
            visited.append(seat.transcript.cursor)
        await seat.press("N", "N", "N")
        assert [*visited, seat.transcript.cursor] == [40, 41, 120, 280]


async def test_a_hit_is_unfolded_and_marked(builder: HomeBuilder, sit: Sit) -> None:
    _home(builder)
    async with sit(builder.home, "r") as seat:
        await _find(seat, "NEEDLE output")
        rows = seat.lines()
        assert seat.transcript.cursor == 41
        place = next(i for i, row in enumerate(rows) if "second: needle in output" in row)
        marked = [
            segment.text
            for segment in seat.transcript.render_line(place)
            if segment.style == seat.transcript.palette.hit
        ]
        assert marked == ["needle", "output"]
        await seat.press("escape")
        assert "/" not in seat.frame("#trajectory").split("|")[1]


async def test_parts_of_words_and_phrases_are_found(builder: HomeBuilder, sit: Sit) -> None:
    _home(builder)
    async with sit(builder.home, "r") as seat:
        await _find(seat, "eedl")
        assert len(seat.transcript.hits) == 5
        await _find(seat, "in thought")
        assert seat.transcript.hits == [120]


async def test_nothing_found_is_said(builder: HomeBuilder, sit: Sit) -> None:
    _home(builder)
    async with sit(builder.home, "r") as seat:
        before = seat.transcript.cursor
        await _find(seat, "absent")
        assert "No step holds 'absent'" in seat.bar("#hints")
        assert seat.transcript.cursor == before
        await seat.press("n")
        assert seat.transcript.cursor == before


def test_a_search_that_is_stopped_says_nothing_more(builder: HomeBuilder) -> None:
    _home(builder)
    told: list[list[int]] = []
    search = Search(
        builder.home,
        "r",
        "needle",
        lambda search, steps, done: (told.append(steps), search.stop()),
        lambda search, problem: None,
    )
    search.start()
    search.join(20)
    assert len(told) == 1  # the first word from the index, before the scan


def test_the_index_answers_without_a_scan(builder: HomeBuilder) -> None:
    from houston_console.app.transcript.searching import indexed
    from houston_shared.store.reader import Reader
    from houston_shared.store.search_query import terms
    from houston_shared.store.searchable import tag, text_of

    _home(builder)
    with Reader(builder.home) as reader:
        assert reader.run(indexed("r", terms("needle"))) == []  # no index yet
    index = sqlite3.connect(builder.home.search_database)
    index.execute("CREATE TABLE indexed (id INTEGER PRIMARY KEY, seq INTEGER)")
    index.execute("INSERT INTO indexed VALUES (1, ?)", (builder.seq,))
    index.execute("CREATE VIRTUAL TABLE entries USING fts5(tag, text, content='')")
    for seq, rollout, kind, body in builder.connection.execute(
        "SELECT seq, rollout, kind, body FROM events"
    ):
        if text := text_of(kind, body):
            index.execute(
                "INSERT INTO entries (rowid, tag, text) VALUES (?, ?, ?)", (seq, tag(rollout), text)
            )
    index.commit()
    index.close()
    with Reader(builder.home) as reader:
        assert sorted(reader.run(indexed("r", terms("needle")))) == [40, 41, 120, 200, 280]
