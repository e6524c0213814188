"""Every theme that the configuration allows is one that the app knows and can be read in."""

from typing import get_args

import pytest

from houston_console.app.console_app import HoustonConsole
from houston_shared.config import Configuration, LoadedConfiguration, load_configuration
from houston_shared.config_sections import ThemeName
from tests.console.conftest import WIDE
from tests.console.home_builder import HomeBuilder

IN_EVERY_TIER = {"houston-light", "houston-colour-blind", "gruvbox"}
THEMES = [
    pytest.param(theme, marks=[] if theme in IN_EVERY_TIER else pytest.mark.slow)
    for theme in get_args(ThemeName)
]


@pytest.mark.parametrize("theme", THEMES)
async def test_a_theme_that_is_allowed_is_the_one_that_is_on(
    theme: ThemeName, builder: HomeBuilder
) -> None:
    builder.home.configuration.write_text(f'[console]\ntheme = "{theme}"\n')
    app = HoustonConsole(load_configuration(str(builder.home.path), environment={}))
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        assert app.theme == theme


async def test_every_theme_of_the_app_is_allowed(builder: HomeBuilder) -> None:
    app = HoustonConsole(LoadedConfiguration(Configuration(), builder.home, "defaults"))
    async with app.run_test(size=WIDE):
        assert set(get_args(ThemeName)) == set(app.available_themes)
