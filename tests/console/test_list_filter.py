"""`/` in every list: only what holds the words stays, and escape brings back the rest."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from houston_console.panes.files_pane import FileList
from houston_console.panes.guidance_pane import GuidanceQueue
from houston_console.panes.jobs_pane import JobList, JobsDialog
from houston_console.panes.since_visit_pane import SinceList
from houston_console.screens.policies_screen import PoliciesScreen
from houston_console.screens.policy_list import PolicyList
from houston_console.screens.rollout_selector import RolloutList
from houston_console.transcript.trajectory_pane import MarkList
from houston_console.transcript.transcript_search import HitList
from houston_console.widgets.line_view import LineView
from houston_console.widgets.list_filter import FilteredList
from houston_shared.records import FileChange
from houston_shared.times_and_counts import now_us
from tests.console.conftest import SMALL, WIDE, LiveStation, Seat, Sit
from tests.console.home_builder import HomeBuilder
from tests.console.test_policies_screen import trained


def _fill(builder: HomeBuilder) -> None:
    """Two of everything: one about cats, one about dogs."""
    with builder.bulk():
        for name in ("r-cat", "r-dog"):
            builder.start(name, "pets")
        for step, word in enumerate(("cat", "dog"), 1):
            change = FileChange(path=f"{word}.py", kind="changed", added=1, removed=0, diff="")
            builder.whole("r-cat", step, f"a pet: {word}", files=(change,))
            builder.say("r-cat", f"g-{word}", f"feed the {word}")
            builder.marked("r-cat", step, "ben", f"the {word} sleeps")
            builder.job("r-cat", step, word, f"run {word}", started_at=now_us() - 10**8)


LISTS: dict[type[FilteredList[Any]], list[str]] = {
    RolloutList: ["1"],
    FileList: ["4"],
    GuidanceQueue: ["6"],
    SinceList: ["I"],
    JobList: ["percent_sign"],
    MarkList: ["L"],
    HitList: ["slash", *"pet", "enter", "number_sign"],
}


@pytest.mark.parametrize("size", [WIDE, SMALL])
async def test_a_list_shows_only_what_holds_the_words(
    builder: HomeBuilder, sit: Sit, size: tuple[int, int]
) -> None:
    _fill(builder)
    async with sit(builder.home, "r-cat", size) as seat:
        for kind, keys in LISTS.items():
            name = kind.__name__
            await _open(seat, kind, keys)
            shown = seat.text(kind)
            assert "cat" in shown and "dog" in shown, (name, shown)
            await seat.press("slash", *"Dog")
            shown = seat.text(kind)
            assert "dog" in shown and not _holds_other(seat, kind, "cat"), (name, shown)
            prompt = seat.app.screen.query_one(kind).prompt
            assert prompt.region.width, name
            found, total = re.findall(r"(\d+) of (\d+)", prompt.render_line(0).text)[0]
            assert 0 < int(found) < int(total), name
            await seat.press("enter")
            assert seat.app.focused is seat.app.screen.query_one(kind), f"keys are {name}'s again"
            await seat.press("slash", "z")
            assert "nothing here holds these words" in seat.text(kind), name
            await seat.press("enter", "escape")
            shown = seat.text(kind)
            assert "cat" in shown and "dog" in shown, f"all of {name} again: {shown}"
            assert not prompt.display, name
            await seat.press("escape")
            assert seat.app.screen is seat.app.watch_screen, name


def _holds_other(seat: Seat, kind: type[LineView], word: str) -> bool:
    """Whether a line that one can stand on holds the word; the rollout's own name is r-cat."""
    view = seat.app.screen.query_one(kind)
    lines = seat.lines(kind)[: view.line_count()]
    return any(word in text.replace("r-cat", "") for text in lines)


async def _open(seat: Seat, kind: type[LineView], keys: list[str]) -> None:
    await seat.press(*keys)
    if keys[0] == "slash":
        await seat.until(lambda: seat.app.screen.query(HitList), "the hits")
    listed: Callable[[], Any] = lambda: (  # noqa: E731
        seat.app.screen.query(kind) and "dog" in seat.text(kind)
    )
    await seat.until(listed, "the list")
    assert isinstance(seat.app.focused, kind)


async def test_policies_and_runs_are_filtered_under_their_headings(
    live: LiveStation, sit: Sit
) -> None:
    trained(live)
    async with sit(live.home, size=SMALL) as seat:
        await seat.press("T")
        assert isinstance(seat.app.screen, PoliciesScreen)
        await seat.until(lambda: "policy@3" in seat.text(PolicyList), "policies")
        await seat.press("slash", *"sft", "minus", "2")
        shown = seat.text(PolicyList)
        assert " Training" in shown and "sft-2" in shown and "sft-1  " not in shown, shown
        assert "esc cancel" in seat.hint()
        await seat.press("enter")
        under = seat.app.screen.query_one(PolicyList).row_at_cursor
        assert (under.run or under.policy) in ("sft-2", "policy@3")
        await seat.press("escape")
        assert isinstance(seat.app.screen, PoliciesScreen), "the filter goes first"
        assert "sft-3" in seat.text(PolicyList)
        await seat.press("escape")
        assert not isinstance(seat.app.screen, PoliciesScreen)


async def test_keys_of_a_dialog_are_for_what_the_filter_has_left(
    builder: HomeBuilder, sit: Sit
) -> None:
    _fill(builder)
    async with sit(builder.home, "r-cat") as seat:
        await _open(seat, JobList, ["percent_sign"])
        await seat.press("slash", *"dog", "enter", "enter")
        assert not isinstance(seat.app.screen, JobsDialog)
        await seat.until(lambda: seat.transcript.cursor == 2, "the step of the dog's job")


async def test_in_the_steps_and_in_the_inspector_the_key_searches(
    builder: HomeBuilder, sit: Sit
) -> None:
    _fill(builder)
    async with sit(builder.home, "r-cat") as seat:
        for keys in (["2"], ["3"]):
            await seat.press(*keys, "slash")
            assert seat.app.screen.query_one("#search").display
            await seat.press("escape")
        assert "filter" not in seat.hint()
        await seat.press("4")
        await seat.until(lambda: "/ filter" in seat.hint(), "files are a list")
