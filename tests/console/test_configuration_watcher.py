"""An open console takes what is edited, or says in its message row why it does not."""

import os
from pathlib import Path

import pytest
from textual.pilot import Pilot

from houston_console.app.console_app import HoustonConsole
from houston_shared.config import LoadedConfiguration, load_configuration
from tests.console.conftest import WIDE
from tests.console.home_builder import HomeBuilder


@pytest.fixture
def loaded(
    builder: HomeBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> LoadedConfiguration:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    (tmp_path / "own/houston").mkdir(parents=True)
    (builder.home.path / "houston.toml").write_text('[console]\ntheme = "nord"\n')
    return load_configuration(str(builder.home.path))


async def says(app: HoustonConsole, pilot: Pilot[None], words: str) -> str:
    """Wait until the message row says so. The limit only bounds a hanging test."""
    shown = ""
    for _ in range(600):
        shown = "".join(span.text for span in app.top_screen.hints._message)
        if words in shown:
            return shown
        await pilot.pause(0.05)
    raise AssertionError(f"{words!r} was not said, but {shown!r}")


def edit(file: Path, text: str) -> None:
    """As editors do: another file takes the place of the old one."""
    beside = file.with_suffix(".swp")
    beside.write_text(text)
    os.replace(beside, file)


async def test_a_theme_is_put_on_and_half_a_file_is_refused(loaded: LoadedConfiguration) -> None:
    file = Path(loaded.source)
    app = HoustonConsole(loaded)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        assert app.theme == "nord"
        file.write_text('[console]\ntheme = "drac\n')
        notice = await says(app, pilot, "stays in force")
        assert "line 2" in notice
        assert app.theme == "nord"
        edit(file, '[console]\ntheme = "dracula"\n')
        await says(app, pilot, "console.theme in force")
        assert app.theme == "dracula"
        edit(file, '[console]\ntheme = "dracula"\nname = "ada"\n')
        await says(app, pilot, "console.name: open the console again")
        edit(file, '[console]\ntheme = "no-such-theme"\n')
        await says(app, pilot, "stays in force")
        assert app.theme == "dracula"


async def test_keys_are_checked_as_they_are_edited(
    loaded: LoadedConfiguration, tmp_path: Path
) -> None:
    keys = tmp_path / "own/houston/keys.toml"
    app = HoustonConsole(loaded)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        keys.write_text('[watch]\nno_such = "x"\n')
        assert "not a console action" in await says(app, pilot, "stay as they were")
        edit(keys, "")
        await says(app, pilot, "open the console again to use them")
