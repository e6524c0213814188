"""Finding things: counts, jumps, marks, lists of places; in any script, and given up in time."""

import asyncio

import pytest

from houston_console.transcript.search_client import (
    MAX_LISTED_HITS,
    SearchClient,
    SearchHistory,
    SearchHits,
    SearchInput,
    hit_line,
)
from houston_console.transcript.transcript_search import HitList, HitsDialog
from houston_console.widgets.styled_text import line_text, line_width
from houston_shared.records import FileChange
from houston_shared.store import search_process
from houston_shared.store.journal_search import SearchHit, SearchProgress
from houston_shared.store.search_matching import SearchQuery
from tests.console.conftest import SECONDS, SMALL, Seat, Sit
from tests.console.home_builder import HomeBuilder

# --- what is asked and found, without an app -----------------------------------------------------


def test_every_choice_of_a_search_is_reached_and_comes_round() -> None:
    search = SearchInput("x")
    for toggle, count in (("mode", 3), ("where", 3), ("what", 4)):
        inputs = [search]
        for _ in range(count):
            inputs.append(inputs[-1].turned(toggle))
        assert len(set(inputs)) == count
        assert inputs[-1] == search
    assert "‹pattern›" in line_text(search.turned("mode").toggles(160))
    assert line_width(search.toggles(78)) <= 60  # the count stands beside it


def test_searches_of_before_are_walked_each_once() -> None:
    earlier = SearchHistory()
    for text in ("a", "b", "a"):
        earlier.add(SearchInput(text))
    assert [earlier.walk(-1), earlier.walk(-1), earlier.walk(-1), earlier.walk(1)] == [
        SearchInput("a"), SearchInput("b"), None, SearchInput("a"),
    ]  # fmt: skip


def _hit(step: int, rollout: str = "r") -> SearchHit:
    return SearchHit(rollout, step, "result", "before the match after", 11, 16)


def test_steps_are_counted_once_in_order_and_walked_round_the_ends() -> None:
    hits = SearchHits(SearchQuery("x", where="rollout", rollout="r"))
    assert (hits.first_step(5), hits.next_step(5, 1)) == (None, None)
    for steps in ((40, 39), (7, 7), (40, 12)):
        hits.add_progress(SearchProgress(tuple(_hit(step) for step in steps)))
    assert (hits.steps, hits.count, hits.total) == ([7, 12, 39, 40], 6, "4… steps")
    assert hits.tally(13) == "2/4…"
    assert [hits.first_step(at) for at in (1, 12, 13, 50)] == [7, 12, 39, 40]
    assert [hits.next_step(40, 1), hits.next_step(12, 1), hits.next_step(7, -1)] == [7, 39, 40]
    hits.add_progress(SearchProgress(done=True))
    assert hits.tally(50) == "4/4"


def test_places_are_listed_up_to_a_number_and_all_counted() -> None:
    hits = SearchHits(SearchQuery("x", where="all"))
    for _ in range(3):
        hits.add_progress(SearchProgress(tuple(_hit(step) for step in range(MAX_LISTED_HITS // 2))))
    assert (len(hits.hits), hits.count) == (MAX_LISTED_HITS, MAX_LISTED_HITS // 2 * 3)
    assert hits.next_place(-1) == hits.hits[-1]
    assert hits.next_place(1) == hits.hits[0]
    assert hits.tally(0) == f"1/{hits.count}… in all rollouts, steps"


@pytest.mark.parametrize("width", [40, 76, 150])
def test_a_place_shows_its_match_at_any_width(width: int) -> None:
    long = "误差 " * 60
    hit = SearchHit(
        "a-very-long-rollout-name-4f2a", 12_345, "web_search", long + "命中 " + long, 180, 182
    )
    shown = hit_line(hit, width, 40)
    assert "命中" in line_text(shown)
    assert line_width(shown) <= width + 60  # the list cuts it; before the match there is room


# --- the process ---------------------------------------------------------------------------------


def _home(builder: HomeBuilder) -> None:
    with builder.bulk():
        builder.start("r")
        builder.start("other", "another-task")
        builder.whole("other", 1, "the needle of another rollout")
        change = FileChange(path="count.py", kind="changed", added=1, removed=0, diff="+newline")
        for number in range(1, 301):
            if number == 200:
                builder.say("r", "g", "a Needle from a person: 误差太大")
            text = "first line\nsecond: needle in output" if number in (40, 41) else "hay"
            thought = "needle in thought" if number == 120 else f"thought {number}"
            call = ("run_command", {"command": "grep needle x" if number == 280 else "ls"})
            files = (change,) if number == 77 else ()
            builder.whole("r", number, thought, (call,), (text,), files=files)


async def test_a_search_that_hangs_in_a_pattern_gives_way_to_the_next(builder: HomeBuilder) -> None:
    _home(builder)
    heard: list[search_process.SearchReport] = []
    finder = SearchClient(builder.home, heard.append, heard.clear)

    async def until_done(number: int) -> list[int]:
        for _ in range(int(SECONDS / 0.05)):
            mine = [report for report in heard if report.number == number]
            if any(report.progress.done for report in mine):
                return sorted(hit.step for report in mine for hit in report.progress.hits)
            await asyncio.sleep(0.05)
        raise AssertionError(heard)

    in_r = {"where": "rollout", "rollout": "r"}
    await finder.ask(SearchQuery("needle", **in_r))
    assert await until_done(1) == [40, 41, 120, 200, 280]
    child = finder._process
    assert child is not None
    child.send_signal(19)  # as in a pattern without end: it neither answers nor ends
    await finder.ask(SearchQuery("误差", **in_r))
    assert await until_done(3) == [200]  # begun once more, in another process
    assert child.returncode is not None
    await finder.close()


# --- at the console ------------------------------------------------------------------------------


async def _find(seat: Seat, words: str, *turns: str) -> SearchHits:
    await seat.press("2", "slash", *turns)
    line = seat.app.watch_screen.trajectory.search.prompt.input_line
    line.value = words  # also what no key of a test can type
    await seat.press("enter")
    searching = seat.app.watch_screen.trajectory.search
    await seat.until(lambda: searching.hits and searching.hits.done, "found all")
    await seat.press()
    assert searching.hits is not None
    return searching.hits


async def test_hits_are_counted_and_visited_in_order(builder: HomeBuilder, sit: Sit) -> None:
    _home(builder)
    async with sit(builder.home, "r") as seat:
        hits = await _find(seat, "needle")
        assert hits.steps == [40, 41, 120, 200, 280]
        assert seat.transcript.cursor == 280  # the nearest before the end
        await seat.until(lambda: "/needle  5/5" in seat.frame("#trajectory"), "the count")
        visited = []
        for _ in range(3):
            await seat.press("n")
            visited.append(seat.transcript.cursor)
        await seat.press("N", "N", "N")
        assert [*visited, seat.transcript.cursor] == [40, 41, 120, 280]
        await seat.press("ampersand")
        assert "only these" in seat.frame("#trajectory")
        shown = [row.split()[1] for row in seat.lines() if row.startswith(("▸", "▾"))]
        assert shown == ["40", "41", "120", "200", "280"]
        assert "second: needle in output" in seat.lines()[0]  # the words around what was found
        await seat.press("k", "k")
        assert seat.transcript.cursor in (120, 200)
        builder.whole("r", 301, "one more needle")
        await seat.until(lambda: hits.steps[-1:] == [301], "what came since")
        await seat.until(lambda: "one more needle" in seat.text(), "shown with the others")
        await seat.press("g", "V", "f")
        assert "▌ 6 of 40–301 chosen" in seat.frame("#trajectory")
        judging = seat.app.watch_screen.trajectory.verdicts
        chosen = judging.session.chosen_steps(
            "r", seat.transcript.cursor, seat.transcript.folds.shown_rows
        )
        assert chosen and chosen.text == "6 steps between 40 and 301"
        await seat.press("escape")
        await seat.transcript.go_to(77)  # what is not shown is shown when somebody goes to it
        assert not seat.transcript.folds.filtered
        await seat.press("escape", "escape")
        assert "/" not in seat.frame("#trajectory").split("|")[1]
        assert seat.transcript.line_count() > 300


async def test_steps_that_come_while_new_ones_are_looked_for_are_searched_next(
    builder: HomeBuilder, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    _home(builder)
    async with sit(builder.home, "r") as seat:
        hits = await _find(seat, "needle")
        searching = seat.app.watch_screen.trajectory.search
        source = seat.app.watch_screen.source
        assert source is not None
        may_ask, ask = asyncio.Event(), searching._client.ask

        async def ask_late(query: SearchQuery) -> None:
            await may_ask.wait()
            await ask(query)

        monkeypatch.setattr(searching._client, "ask", ask_late)
        for step in (301, 302):
            seq = source.seq
            builder.whole("r", step, "one more needle")
            await seat.until(lambda seq=seq: source.seq > seq, "it was read")
            searching.on_transcript_view_moved()
        may_ask.set()
        await seat.until(lambda: hits.steps[-1:] == [302], "both were searched")
        assert hits.steps == [40, 41, 120, 200, 280, 301, 302]


async def test_a_hit_is_unfolded_and_marked(builder: HomeBuilder, sit: Sit) -> None:
    _home(builder)
    async with sit(builder.home, "r") as seat:
        await _find(seat, "NEEDLE In Out")
        assert seat.transcript.cursor == 41
        rows = seat.lines()
        place = next(i for i, row in enumerate(rows) if "second: needle in output" in row)
        strip = seat.transcript.render_line(place)
        hit = seat.transcript.palette.hit
        marked = [part.text for part in strip if part.style and part.style.bgcolor == hit.bgcolor]
        assert marked == ["needle in out"]


async def test_the_count_is_there_before_enter_and_esc_leaves(
    builder: HomeBuilder, sit: Sit
) -> None:
    _home(builder)
    async with sit(builder.home, "r", SMALL) as seat:
        before = seat.transcript.cursor
        await seat.press("slash", *"needle")
        await seat.until(lambda: "5 steps" in seat.bar("#search-toggles"), "a live count")
        await seat.press("ctrl+r", "ctrl+r")
        await seat.until(lambda: "‹words›" in seat.bar("#search-toggles"), "another mode")
        assert seat.transcript.cursor == before
        assert "ctrl+o where" in seat.bar("#hints")
        await seat.press("escape")
        await seat.until(lambda: "enter unfold" in seat.bar("#hints"), "the keys of the steps")
        searching = seat.app.watch_screen.trajectory.search
        await seat.until(lambda: searching.hits is None, "given up")
        assert seat.app.focused is seat.transcript


async def test_chinese_is_found_and_nothing_found_is_said(builder: HomeBuilder, sit: Sit) -> None:
    _home(builder)
    async with sit(builder.home, "r") as seat:
        assert (await _find(seat, "误差")).steps == [200]
        assert seat.transcript.cursor == 200
        await _find(seat, "absent")
        assert "No step holds 'absent'" in seat.bar("#hints")
        assert seat.transcript.cursor == 200
        await seat.press("n")
        assert seat.transcript.cursor == 200


async def test_places_of_all_rollouts_are_listed_and_opened(builder: HomeBuilder, sit: Sit) -> None:
    _home(builder)
    async with sit(builder.home, "r") as seat:
        hits = await _find(seat, "needle", "ctrl+o", "ctrl+o")
        assert isinstance(seat.app.screen, HitsDialog)
        assert hits.count == 6
        assert "other@1" in seat.text(HitList)
        await seat.press("G", "enter")
        await seat.until(lambda: seat.app.state.selected == "other", "the other rollout")
        await seat.until(lambda: "needle of another" in seat.text(), "its step")
        await seat.press("n")
        await seat.until(lambda: seat.app.state.selected == "r", "round the end")
        await seat.press("2", "slash", "ctrl+o", "ctrl+t")  # this rollout, diffs
        await seat.write("newline")
        await seat.press("enter")
        await seat.until(lambda: "r@77" in seat.text(HitList), "a diff")
        await seat.press("enter")
        await seat.until(lambda: seat.transcript.cursor == 77, "its step")
