"""A part of the console that fails says so in its place, and the rest lives on."""

import gc
from pathlib import Path

import pytest
from textual.widget import Widget

from houston_console.app import console_app as app_module
from houston_console.app.console_app import HoustonConsole
from houston_console.app.error_boundary import ErrorBoundary
from houston_console.panes.files_pane import DiffView
from houston_console.transcript.transcript_view import Transcript
from houston_console.widgets.dialogs import QuestionDialog
from houston_shared.records import FileChange
from tests.console import crowded_home
from tests.console.conftest import WIDE, Sit
from tests.console.home_builder import HomeBuilder

MIDDLE = (120, 35)


def _three_steps(builder: HomeBuilder) -> None:
    """Steps that changed files, so that every area has something to show."""
    with builder.bulk():
        builder.start("r")
        for step in range(1, 4):
            change = FileChange(
                path=f"count{step}.py",
                kind="changed",
                added=2,
                removed=1,
                diff="@@ -1 +1,2 @@\n-a\n+b\n+" + "c" * 200,
            )
            builder.whole("r", step, "edits", files=(change,))


PRESSED = {
    "a diff side by side over the whole screen": ("4", "down", "enter", "z", "s", "z"),
    "a diff side by side, made narrow": ("4", "enter", "s", "z", "z", "s"),
    "the end of a search that found nothing": ("slash", *"zzzz", "enter", "G"),
    "the end of policies where there are none": ("T", "G"),
    "the start of policies where there are none": ("T", "g", "k", "j", "enter"),
}


@pytest.mark.parametrize("what", PRESSED)
async def test_keys_that_ended_the_console(what: str, builder: HomeBuilder, sit: Sit) -> None:
    _three_steps(builder)
    async with sit(builder.home, size=MIDDLE) as seat:
        for key in PRESSED[what]:
            await seat.press(key)
        assert seat.app.is_running


async def test_enter_pressed_twice_answers_a_question_once(builder: HomeBuilder, sit: Sit) -> None:
    _three_steps(builder)
    answers: list[tuple[str, ...] | None] = []
    async with sit(builder.home, size=MIDDLE) as seat:
        below = list(seat.app.screen_stack)
        question = QuestionDialog("Name", "What is it called?", {"name": "x"})
        await seat.app.push_screen(question, answers.append)
        question.on_input_submitted()
        question.on_input_submitted()
        await seat.pilot.pause()
        assert answers == [("x",)]
        assert seat.app.screen_stack == below


async def test_home_is_drawn_at_a_size_that_it_was_not_measured_for(
    tmp_path: Path, sit: Sit
) -> None:
    builder = crowded_home.build(tmp_path)
    for number in range(20):  # more than fit with two lines each, also on a high screen
        builder.start(f"more-{number}")
    async with sit(builder.home, at_home=True, size=(80, 24)) as seat:
        await seat.pilot.resize_terminal(200, 60)
        # Lists are measured again when messages allow; until then they are drawn as they were.
        await seat.until(lambda: "more-7" in seat.text("#home-list"), "the higher screen is filled")
    builder.close()


async def test_a_pane_that_cannot_be_drawn_says_so_in_its_place(
    builder: HomeBuilder, sit: Sit
) -> None:
    _three_steps(builder)
    async with sit(builder.home, size=WIDE) as seat:
        view = seat.transcript
        whole = view.render_line
        view.render_line = _raising  # type: ignore[method-assign]
        view.refresh()
        await seat.pilot.pause()
        strips = seat.app.screen._compositor.render_strips()
        shown = "\n".join(strip.text for strip in strips)
        assert "This cannot be drawn: Transcript: IndexError in" in shown, shown
        assert "count3.py" in shown  # the files beside it
        assert "A part of the console failed" in seat.hint()
        log = seat.app.errors.path.read_text()
        assert "line 0 of nothing" in log and "Traceback" in log
        view.render_line = whole  # type: ignore[method-assign]
        await seat.press("down")
        assert "edits" in seat.text(Transcript)
        assert set(seat.app.errors.faults) == {seat.app.errors.faults[0]}
        assert log.count("Traceback") == 1  # drawn again and again, logged once
        seat.expected_faults = seat.app.errors.faults


def _raising(number: int) -> None:
    raise IndexError(f"line {number} of nothing")


async def test_a_key_that_fails_costs_only_itself(
    builder: HomeBuilder, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    _three_steps(builder)
    async with sit(builder.home) as seat:
        with monkeypatch.context() as broken:
            broken.setattr(Transcript, "action_down", lambda self: _raising(7))
            await seat.press("down")
        assert "A part of the console failed: Transcript" in seat.hint() or seat.app.errors.faults
        before = seat.transcript.cursor
        await seat.press("up")
        assert seat.transcript.cursor != before
        seat.expected_faults = seat.app.errors.faults
        assert len(seat.expected_faults) == 1


async def test_background_work_that_fails_is_begun_again(
    builder: HomeBuilder, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "BACKGROUND_RETRY_SECONDS", 0.0)
    times: list[int] = []
    armed: list[bool] = []
    real = HoustonConsole.refresh_from_store

    async def fails_once(self: HoustonConsole) -> None:
        if armed and not times:
            times.append(1)
            raise ValueError("news that nobody can read")
        await real(self)

    _three_steps(builder)
    monkeypatch.setattr(HoustonConsole, "refresh_from_store", fails_once)
    async with sit(builder.home) as seat:
        armed.append(True)
        builder.whole("r", 4, "goes on")
        await seat.until(lambda: "goes on" in seat.text(Transcript), "shown")
        assert times
        seat.expected_faults = seat.app.errors.faults
        assert len(seat.expected_faults) == 1


async def test_a_task_that_nobody_waits_for_fails_in_sight(
    builder: HomeBuilder, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> bool:
        raise ValueError("rows that nobody can read")

    _three_steps(builder)
    async with sit(builder.home) as seat:
        with monkeypatch.context() as failing:
            failing.setattr(Transcript, "_fill_rows", broken)
            seat.transcript._fill_soon()
            await seat.transcript.settle()
        seat.transcript._fill_soon()  # the task before it is let go
        gc.collect()
        assert "A part of the console failed" in seat.hint()
        seat.expected_faults = seat.app.errors.faults
        assert len(seat.expected_faults) == 1
        assert "rows that nobody can read" in seat.app.errors.path.read_text()


async def test_a_fault_while_it_starts_ends_the_program(
    builder: HomeBuilder, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: HoustonConsole) -> None:
        raise ValueError("not even begun")

    _three_steps(builder)
    monkeypatch.setattr(HoustonConsole, "on_mount", broken)
    with pytest.raises(ValueError, match="not even begun"):
        async with sit(builder.home):
            pass


def test_every_part_has_a_boundary() -> None:
    assert DiffView  # all modules are imported with the app

    def below(kind: type[Widget]) -> set[type[Widget]]:
        direct = set(kind.__subclasses__())
        return direct.union(*(below(part) for part in direct)) if direct else direct

    ours = {kind for kind in below(Widget) if kind.__module__.startswith("houston_console.")}
    assert len(ours) > 25
    assert [kind.__name__ for kind in ours if not issubclass(kind, ErrorBoundary)] == []
