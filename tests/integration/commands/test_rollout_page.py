"""`houston rollout html` in a browser: nothing from elsewhere, nothing hostile, and it works.

Skipped where no Chromium is installed: it is 300 MB that nothing else here needs.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import Browser, find_browser
from tests.support.houston_command import houston_command
from tests.support.page_home import HOSTILE, ROLLOUT, build_page_home

PROGRAM = find_browser()
pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="no Chromium is installed (apt-get install chromium)"
)

SHOWN = "[...document.querySelectorAll('article.step')].filter(s => !s.hidden).map(s => s.id)"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    build_page_home(folder / "home")
    file = folder / "page.html"
    words = ["--home", str(folder / "home"), "rollout", "html", ROLLOUT, "--out", str(file)]
    subprocess.run(houston_command(*words), check=True)
    return file


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert PROGRAM is not None
    made = Browser(PROGRAM, tmp_path_factory.mktemp("profile"))
    yield made
    made.close()


def requested(browser: Browser) -> list[str]:
    events = browser.told("Network.requestWillBeSent")
    return [event["request"]["url"] for event in events]


def complaints(browser: Browser) -> list[Any]:
    errors = [event["entry"]["text"] for event in browser.told("Log.entryAdded")]
    return errors + browser.told("Runtime.exceptionThrown")


def test_it_asks_nobody_for_anything_and_hostile_text_is_text(page: Path, browser: Browser) -> None:
    browser.open(page)
    assert requested(browser) == [page.as_uri()]
    assert complaints(browser) == []
    assert browser.evaluate("document.title") == f"faster-kernel · {ROLLOUT}"
    assert browser.evaluate("document.scripts.length") == 1
    assert browser.evaluate("document.images.length") == 0
    shown = browser.evaluate("document.querySelector('#step-8 .observation').textContent")
    assert shown.startswith(HOSTILE.partition("\x1b")[0])
    assert "\x1b" not in shown and "title" not in shown.partition("onerror")[2].partition("&lt;")[2]
    assert browser.evaluate("document.querySelectorAll('article.step').length") == 10


def test_its_policy_runs_no_script_and_loads_nothing_that_gets_in(
    page: Path, browser: Browser, tmp_path: Path
) -> None:
    """As if something had not been escaped."""
    inside = "<script>document.title='taken'</script><img src='https://example.org/x.png'>"
    broken = tmp_path / "broken.html"
    broken.write_text(page.read_text().replace("<main>", f"<main>{inside}", 1))
    browser.open(broken)
    assert browser.evaluate("document.title") == f"faster-kernel · {ROLLOUT}"
    blocked = [event for event in complaints(browser) if "Content Security Policy" in event]
    assert len(blocked) == 2, "the script and the picture"


def test_a_link_to_a_step_opens_it(page: Path, browser: Browser) -> None:
    browser.open(page, "#step-5")
    is_open = (
        "[...document.querySelectorAll('article.step > details[open]')].map(d => d.parentNode.id)"
    )
    assert browser.evaluate(is_open) == ["step-5"]
    assert browser.evaluate("document.querySelector('#step-5').getBoundingClientRect().top < 300")
    browser.evaluate("document.querySelector('.chart a').dispatchEvent(new MouseEvent('click'))")
    browser.evaluate("location.hash = document.querySelector('.strip a.guided').hash")
    browser.told("Page.frameNavigated")
    assert "step-4" in browser.evaluate(is_open)


FILTERS = [
    pytest.param("fused attention", "", ["step-5"], id="words of a thought"),
    pytest.param("BENCH.PY ada", "", ["step-4"], id="what a person said, in any case"),
    pytest.param("", "masked", ["step-3", "step-4"], id="masked steps"),
    pytest.param("", "scored", ["step-6", "step-10"], id="scored steps"),
    pytest.param("pytest", "failed", ["step-7"], id="both"),
    pytest.param("no such words", "", [], id="none"),
]


@pytest.mark.parametrize(("words", "mark", "left"), FILTERS)
def test_the_filter_leaves_the_steps_that_fit(
    page: Path, browser: Browser, words: str, mark: str, left: list[str]
) -> None:
    browser.open(page)
    if mark:
        browser.evaluate(f"document.querySelector('button.narrow.{mark}').click()")
    browser.evaluate(
        f"document.getElementById('filter').value = {words!r};"
        "document.getElementById('filter').dispatchEvent(new Event('input'));"
        "new Promise(done => setTimeout(done, 300))"
    )
    assert browser.evaluate(SHOWN) == left
    assert browser.evaluate("document.getElementById('shown').textContent") == (
        f"{len(left)} of 10 steps"
    )


def test_it_follows_the_theme_of_who_looks(page: Path, browser: Browser) -> None:
    browser.open(page)
    papers = []
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.ask("Emulation.setEmulatedMedia", features=[feature])
        color = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        papers.append([int(part) for part in color.strip("rgb()").split(",")])
    light, dark = papers
    assert min(light) > 200
    assert max(dark) < 60


def test_it_reads_without_its_script_and_on_a_narrow_screen(page: Path, browser: Browser) -> None:
    browser.ask("Emulation.setScriptExecutionDisabled", value=True)
    size = {"width": 360, "height": 700, "deviceScaleFactor": 1, "mobile": True}
    browser.ask("Emulation.setDeviceMetricsOverride", **size)
    try:
        browser.open(page)
        assert len(browser.evaluate(SHOWN)) == 10
        width = browser.evaluate("document.documentElement.scrollWidth")
        assert width <= 360, "nothing is wider than the screen"
    finally:
        browser.ask("Emulation.setScriptExecutionDisabled", value=False)
        browser.ask("Emulation.clearDeviceMetricsOverride")
