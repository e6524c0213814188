"""Every key has one meaning, can be changed by its person, and can be found by its words."""

import asyncio
from pathlib import Path

import pytest
from textual import events

from houston_console.app import key_order
from houston_console.app.key_bindings import KEYS, find_key_conflicts, keymap_toml, load_keymap
from houston_console.transcript.transcript_search import HitsDialog
from houston_console.widgets import dialogs
from houston_console.widgets.dialogs import CommandInput
from houston_console.widgets.key_help import HelpDialog
from houston_shared.errors import ExitCode, HoustonError
from tests.console.conftest import SECONDS, SMALL, Seat, Sit
from tests.console.home_builder import HomeBuilder
from tests.support.station import Station


def test_no_key_means_two_things_in_one_place() -> None:
    assert [
        (key, row.description, other.description) for key, row, other in find_key_conflicts(KEYS)
    ] == []


def test_every_action_has_a_name_of_its_own() -> None:
    names = [(binding.area, binding.name) for binding in KEYS]
    assert sorted(set(names)) == sorted(names)


def _file(folder: Path, text: str) -> Path:
    path = folder / "keys.toml"
    path.write_text(text)
    return path


def test_what_is_printed_is_a_file_that_changes_nothing(tmp_path: Path) -> None:
    keys = load_keymap(_file(tmp_path, keymap_toml(KEYS)))
    assert {(binding.area, binding.name): binding.keys for binding in keys} == {
        (binding.area, binding.name): binding.keys for binding in KEYS
    }


def test_a_person_gives_an_action_other_keys(tmp_path: Path) -> None:
    text = '[find]\ninspect = "ctrl+e, ctrl+y"\n[watch]\narea-files = "9"\n'
    keys = {(binding.area, binding.name): binding for binding in load_keymap(_file(tmp_path, text))}
    assert (keys["find", "inspect"].keys, keys["find", "inspect"].label) == (
        "ctrl+e,ctrl+y",
        "ctrl+e ctrl+y",
    )
    assert keys["watch", "area-files"].keys == "9"
    assert len(keys) == len(KEYS)
    assert load_keymap(tmp_path / "none.toml") == KEYS


WRONG = {
    "an unknown action": ('[find]\nfly = "f1"\n', "`[find] fly`, which is not a console"),
    "an unknown area": ('[moon]\ninspect = "v"\n', "`[moon] inspect`, which is not a console"),
    "no key": ('[find]\ninspect = "shift-v"\n', "'shift-v', which is not a key"),
    "no text": ("[find]\neye = 3\n", "a value that is not text"),
    "no table": ('inspect = "v"\n', "outside a table"),
    "two meanings": ('[find]\ninspect = "j"\n', "'j' with two meanings"),
    "no TOML": ("[find\n", "not valid TOML"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_told_in_a_sentence(tmp_path: Path, name: str) -> None:
    text, words = WRONG[name]
    with pytest.raises(HoustonError) as raised:
        load_keymap(_file(tmp_path, text))
    assert words in str(raised.value)
    assert raised.value.code == ExitCode.CONFIGURATION


def test_the_command_prints_the_keys_that_are_in_use(station: Station) -> None:
    station.environment["XDG_CONFIG_HOME"] = str(station.folder / "config")
    assert 'inspect = "v"' in station.run("console", "--keymap").stdout
    own = station.folder / "config" / "houston"
    own.mkdir(parents=True)
    _file(own, '[find]\ninspect = "ctrl+e"\n')
    assert 'inspect = "ctrl+e"' in station.run("console", "--keymap").stdout
    _file(own, '[find]\nfly = "f"\n')
    refused = station.run("console", code=int(ExitCode.CONFIGURATION))
    assert "not a console action" in refused.stderr


FOUND = {
    "pau": "pause this rollout",
    "inspect": "prompt inspector: exactly what the model got",
    "nx err": "next error",
    "theme ansi": "theme houston-ansi",
}


@pytest.mark.parametrize("typed", FOUND)
def test_a_few_letters_find_a_command(typed: str) -> None:
    matches = dialogs.match_commands(dialogs.available_commands("trajectory", []), typed)
    assert matches[0].text == FOUND[typed]


async def test_a_command_is_done_where_the_focus_was(builder: HomeBuilder, sit: Sit) -> None:
    builder.start("r")
    for number in range(1, 6):
        builder.whole("r", number, "fine", success=number != 2)
    async with sit(builder.home, size=SMALL) as seat:
        await seat.press("ctrl+p")
        await seat.write("error befo")
        await seat.press("enter")
        await seat.until(lambda: seat.transcript.cursor == 2, "at the error")
        assert seat.app.focused is seat.transcript


async def test_a_command_opens_another_rollout(builder: HomeBuilder, sit: Sit) -> None:
    for name in ("r-one", "r-two"):
        builder.start(name)
        builder.whole(name, 1, f"I am {name}")
    async with sit(builder.home, "r-one", SMALL) as seat:
        await seat.press("ctrl+p")
        await seat.write("open r")
        await seat.press("enter")
        await seat.until(lambda: "I am r-two" in seat.text(), "the other one")


async def test_escape_and_a_theme(builder: HomeBuilder, sit: Sit) -> None:
    builder.start("r")
    async with sit(builder.home, size=SMALL) as seat:
        await seat.press("ctrl+p", "escape")
        assert seat.app.screen is seat.app.watch_screen
        await seat.press("ctrl+p")
        await seat.write("colour")
        await seat.press("enter")
        await seat.until(lambda: seat.app.theme == "houston-colour-blind", "its colours")


async def test_keys_of_a_line_do_not_overtake_letters(builder: HomeBuilder, sit: Sit) -> None:
    builder.start("r")
    async with sit(builder.home, size=SMALL) as seat:
        await seat.press("ctrl+p")
        line = seat.app.screen.query_one(CommandInput)
        for key in ("o", "n", "e", "ctrl+u", "t", "w", "o", "home", "x"):
            seat.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await seat.until(lambda: line.value == "xtwo", "in the order they came")


def _typed(seat: Seat, *keys: str) -> None:
    """Keys that came in one read."""
    for key in keys:
        character = {"space": " ", "enter": "\r"}.get(key, key if len(key) == 1 else None)
        seat.app.post_message(events.Key(key, character))


async def test_keys_in_one_read_go_where_the_focus_has_moved(
    builder: HomeBuilder, sit: Sit
) -> None:
    builder.start("r")
    asked: list[tuple[str, ...] | None] = []
    async with sit(builder.home) as seat:
        question = dialogs.QuestionDialog("Hand over", "To whom?", {"to": "anybody", "note": ""})
        await seat.app.push_screen(question, asked.append)
        _typed(seat, *"note", "shift+tab", "ctrl+u", *"ben", "tab", *"!", "enter", "5", *"hi")
        await seat.until(lambda: asked, "answered")
        assert asked == [("ben", "note!")]
        composer = seat.app.watch_screen.guidance.composer
        await seat.until(lambda: composer.text == "hi", "what came behind the answer")


async def test_a_search_in_one_read_is_as_its_keys_say(builder: HomeBuilder, sit: Sit) -> None:
    for rollout in ("r", "other"):
        builder.start(rollout)
        builder.whole(rollout, 1, "A quasar is in it.")
    async with sit(builder.home, "r") as seat:
        _typed(seat, "slash", "ctrl+o", "ctrl+o", *"quasar", "enter")
        await seat.until(lambda: isinstance(seat.app.screen, HitsDialog), "a list of places")
        await seat.until(
            lambda: any("all rollouts" in str(box.border_title)
                        for box in seat.app.screen.query("#results")),
            "which says where it looked",
        )  # fmt: skip


async def test_a_part_that_hangs_does_not_take_the_keyboard(
    builder: HomeBuilder, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder.start("r")
    monkeypatch.setattr(key_order, "PATIENCE_SECONDS", 0.1)
    async with sit(builder.home) as seat:
        released = asyncio.Event()
        seat.app.watch_screen.files.call_later(released.wait)
        _typed(seat, "question_mark")
        async with asyncio.timeout(SECONDS):
            while not isinstance(seat.app.screen, HelpDialog):  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # a pilot's pause would wait for what hangs
        released.set()
