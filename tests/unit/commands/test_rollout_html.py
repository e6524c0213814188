"""`houston rollout html`: what is in the page, and what is not."""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from houston_console.commands.rollout_page import page_elements, score_chart
from houston_console.commands.rollout_page.page_elements import element, extend, markup
from houston_console.commands.rollout_page.score_chart import ChartPoint
from houston_console.commands.rollout_page.terminal_colors import colored_text
from houston_shared import command, secret_redaction
from houston_shared.errors import ExitCode
from tests.console.home_builder import HomeBuilder
from tests.support.page_home import ROLLOUT, build_page_home

MEGABYTES_20 = "x" * 20_000_000


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page") / "home"
    build_page_home(folder)
    return folder


@pytest.fixture(autouse=True)
def forgotten_secrets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A command says for its whole process what is secret; other tests know nothing of it."""
    monkeypatch.setenv(secret_redaction.SECRETS_VARIABLE, "")
    yield
    secret_redaction.process_redactor.cache_clear()


def page_of(home: Path, capsys: pytest.CaptureFixture[str], place: str = ROLLOUT) -> str:
    assert command.main(["--home", str(home), "rollout", "html", place, "--out", "-"]) == 0
    return capsys.readouterr().out


def steps_in(page: str) -> list[int]:
    return [int(number) for number in re.findall(r'<article class="[^"]*" id="step-(\d+)"', page)]


def test_the_page_has_all_that_was_done_and_said(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = page_of(home, capsys)
    assert steps_in(page) == list(range(1, 11))
    for text in (
        "Make attention() in kernel.py as fast as you can",  # the task
        "A training run will tell me what dominates.",  # a thought
        "python bench.py --repeat 5",  # a call
        "kernel    19.8 ms (2.08x)",  # what it gave
        "Do not train: measure attention() alone with bench.py.",  # guidance
        "mask by alice (human): waited for a training that nobody asked for",
        "keep by judge (judge): measured, then submitted",
        "sleeps: nothing was done for 10 minutes",
        "★ ada: the turn that mattered",
        "withdrawn",
        '<span class="added">+    with torch.backends',
        '<span class="removed">-    return scores',
        '<span class="bold fg1">E   AssertionError',  # a terminal's colours
        "91 at step 10",  # a point of the chart
    ):
        assert text in page, text
    assert page.count("<script") == 1
    assert "http" not in re.sub(r'http-equiv="|xmlns="[^"]*"', "", page), "nothing from elsewhere"


PLACES = [
    pytest.param(f"{ROLLOUT}@5", [5], "Steps 5 to 5 of 10.", id="one step"),
    pytest.param(f"{ROLLOUT}@2-4", [2, 3, 4], "Steps 2 to 4 of 10.", id="some steps"),
    pytest.param("faster", list(range(1, 11)), "", id="the beginning of its name"),
]


@pytest.mark.parametrize(("place", "steps", "note"), PLACES)
def test_a_part_of_it_says_that_it_is_one(
    home: Path, capsys: pytest.CaptureFixture[str], place: str, steps: list[int], note: str
) -> None:
    page = page_of(home, capsys, place)
    assert steps_in(page) == steps
    assert note in page
    assert bool(note) == ("Steps " in page)


def test_a_rollout_that_goes_on_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with HomeBuilder(tmp_path / "home") as builder:
        builder.start("words-1111")
        builder.whole("words-1111", 1, "done", texts=("ok",))
        builder.begin("words-1111", 2, "not done")
    page = page_of(tmp_path / "home", capsys, "words")
    assert steps_in(page) == [1]
    assert "The rollout has not ended: this is its state at" in page
    assert "<svg" not in page, "nothing was scored"


def test_long_texts_are_cut_and_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with HomeBuilder(tmp_path / "home") as builder:
        builder.start("words-1111")
        builder.whole("words-1111", 1, "a log", texts=("begins" + MEGABYTES_20 + "ends",))
    page = page_of(tmp_path / "home", capsys, "words")
    assert len(page) < 120_000
    assert "19,960,010 of 20,000,010 characters left out" in page
    assert "begins" in page and "ends</pre>" in page


SECRETS = [
    pytest.param(ROLLOUT, "alone with bench.py", "alone with", id="a message"),
    pytest.param(ROLLOUT, "scaled_dot_product_attention", "scaled_dot", id="a folded line"),
    pytest.param(
        ROLLOUT, "softmax(-1) @ v\n+    with torch.backends.cuda", "softmax(-1) @ v", id="a diff"
    ),
    pytest.param("cut-2222", "vv9-at-the-cut", "vv9-a", id="where a long text is cut"),
    pytest.param("cut-2222", "ww9-in-a-title", "ww9-i", id="a title of the chart"),
]


@pytest.mark.parametrize(("rollout", "secret", "part"), SECRETS)
def test_secrets_of_this_machine_do_not_leave_it(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    rollout: str,
    secret: str,
    part: str,
) -> None:
    """Also what was recorded before it was one, and the part of one that a cut would leave."""
    home = tmp_path / "home"
    build_page_home(home)
    with HomeBuilder(home) as builder:
        rest = page_elements.MAX_TEXT_CHARACTERS * 3 // 4 - 5
        builder.start("cut-2222")
        builder.say("cut-2222", "g9", "x" * 190 + "ww9-in-a-title")
        builder.scored("cut-2222", 1, "", 1.0)
        builder.whole("cut-2222", 2, texts=("x" * rest + "vv9-at-the-cut" + "x" * 90_000,))
    before = page_of(home, capsys, rollout)
    monkeypatch.setenv("BENCH_TOKEN", secret)
    secret_redaction.process_redactor.cache_clear()
    page = page_of(home, capsys, rollout)
    assert part in before
    assert part not in page
    assert "[secr" in page, "its name, of which a cut may leave a part"


FILES = [
    pytest.param(["--out", "no/such/folder/page.html"], 1, "cannot be written", id="no folder"),
    pytest.param(["--out", "."], 2, "is there, and no file", id="a folder"),
    pytest.param(["--out", "mine.txt"], 1, "mine.txt already exists", id="a file"),
    pytest.param([], 1, f"{ROLLOUT}.html already exists", id="an earlier page"),
]


@pytest.mark.parametrize(("words", "code", "said"), FILES)
def test_a_place_that_cannot_be_written_is_a_sentence(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine.txt", f"{ROLLOUT}.html"):
        (tmp_path / name).write_text("kept")
    assert command.main(["--home", str(home), "rollout", "html", ROLLOUT, *words]) == code
    error = capsys.readouterr().err
    assert said in error and "Nothing was written." in error
    assert (tmp_path / "mine.txt").read_text() == "kept"
    assert (tmp_path / f"{ROLLOUT}.html").read_text() == "kept"


def test_it_is_written_into_this_folder_and_says_where(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command.main(["--home", str(home), "rollout", "html", ROLLOUT, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    file = tmp_path / f"{ROLLOUT}.html"
    assert told == {
        "rollout": ROLLOUT, "file": str(file), "bytes": file.stat().st_size, "steps": 10,
    }  # fmt: skip
    assert file.read_text().startswith("<!doctype html>")
    file.write_text("an earlier one")
    assert command.main(["--home", str(home), "rollout", "html", ROLLOUT, "--force"]) == 0
    assert file.read_text().startswith("<!doctype html>")
    capsys.readouterr()
    wrong = command.main(["--home", str(home), "rollout", "html", f"{ROLLOUT}@99"])
    assert wrong == ExitCode.NOT_FOUND
    assert "has 10 steps so far" in capsys.readouterr().err


COLORS = [
    pytest.param("plain", "plain", id="none"),
    pytest.param("\x1b[31mred\x1b[0m!", '<span class="fg1">red</span>!', id="a colour and its end"),
    pytest.param("\x1b[1;4;92mx", '<span class="bold underline fg10">x</span>', id="several"),
    pytest.param("\x1b[1mb\x1b[22mn", '<span class="bold">b</span>n', id="a switch and its end"),
    pytest.param("\x1b[33;44mx\x1b[39my",
                 '<span class="fg3 bg4">x</span><span class="bg4">y</span>',
                 id="ground and letters"),
    pytest.param("\x1b[7mx", '<span class="reverse">x</span>', id="reversed"),
    pytest.param("\x1b[7;31mx", '<span class="bg1">x</span>', id="reversed colours"),
    pytest.param("\x1b[38;5;196mx", '<span class="fg1">x</span>', id="one of 256"),
    pytest.param("\x1b[48;2;240;240;240mx", '<span class="bg7">x</span>', id="one of 16 million"),
    pytest.param("\x1b[38;5mx\x1b[99999mx", "xx", id="half a colour, and none"),
    pytest.param("a\x1b[2Jb\x1b[10;5Hc\x1b]0;t\x07d\x1b]8;;http://e\x1b\\e", "abcde", id="moves"),
    pytest.param("\x1b[31", "\u241b[31", id="a sequence without an end"),
    pytest.param("\x00\x07\x1b", "\u2400\u2407\u241b", id="control characters"),
    pytest.param("\udcff\u202e", "\ufffd&lt;U+202E&gt;", id="a surrogate and a bidi control"),
    pytest.param("<b>&amp;</b>", "&lt;b&gt;&amp;amp;&lt;/b&gt;", id="markup"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "shown"), COLORS)
def test_colours_are_classes_and_everything_else_is_text(text: str, shown: str) -> None:
    assert markup(extend(element("pre"), colored_text(text))) == f"<pre>{shown}</pre>"


def test_an_attribute_ends_where_it_is_meant_to() -> None:
    read: list[tuple[str, list[tuple[str, str | None]]]] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: read.append((tag, attributes))  # type: ignore
    parser.feed(markup(element("span", title="\"><script>x</script>'\x1b\udcff")))
    assert read == [("span", [("title", "\"><script>x</script>'\u241b\ufffd")])]


SCALES = [
    pytest.param([52.5, 91.0], (0.0, 100.0), id="of a hundred"),
    pytest.param([0.0], (0.0, 1.0), id="nothing"),
    pytest.param([0.013], (0.0, 0.02), id="very small"),
    pytest.param([-3.0, 4.0], (-3.0, 7.0), id="below none"),
    pytest.param([1234.0], (0.0, 2000.0), id="large"),
]


@pytest.mark.parametrize(("values", "scale"), SCALES)
def test_the_scale_of_a_chart_holds_its_scores(
    values: list[float], scale: tuple[float, float]
) -> None:
    assert score_chart._scale(values) == pytest.approx(scale)


def test_a_chart_of_a_rollout_without_time_is_drawn() -> None:
    chart = score_chart.score_chart([ChartPoint(1, 0.0, 50.0, "50")], 0.0)
    assert chart is not None
    assert "NaN" not in markup(chart) and "inf" not in markup(chart)
    assert page_elements.cut_text("short") == ("short", "", "")
