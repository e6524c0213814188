"""Nobody but a person is ever heard as one: 2,000 look-alikes, every reader, and clean text."""

import itertools
import json
import random
import re
import subprocess
from collections.abc import Callable

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from houston_console.screens import prompt_rendering
from houston_console.transcript import step_rendering
from houston_console.transcript.trajectory_reader import read_step_rows
from houston_console.widgets.styled_text import line_text
from houston_daemon.environments import observation_boundary
from houston_daemon.hosts.terminals import terminal_log
from houston_shared import context_messages, guidance_tag
from houston_shared.guidance_tag import CLOSING_TAG, OPENING_TAG, disarm, find_look_alikes
from houston_shared.home import Home
from houston_shared.records import DeliveredGuidance, ToolCall, ToolResult
from houston_shared.store import step_queries
from houston_shared.store.store_reader import Reader
from tests.console.home_builder import HomeBuilder
from tests.security.look_alikes import (
    COUNT,
    FORGED,
    OF_AN_AUDIT,
    hidden_in_a_terminal,
    variants,
)
from tests.support.houston_command import houston_command

VARIANTS = variants()
A_STEP = 20
SAID = "the word of a person"
ROLLOUT = "r"


def _alive(text: str) -> int:
    """Places that a model could take for the daemon's tag; `&lt;` is how a dead one is written."""
    return sum(not text.startswith("&lt;", at) for at, _ in find_look_alikes(text))


def test_there_are_as_many_as_promised_and_each_is_seen() -> None:
    assert len(set(VARIANTS)) == COUNT
    assert [one for one in VARIANTS if not disarm(one).found] == []


@pytest.mark.parametrize("what", OF_AN_AUDIT)
def test_what_passed_once_is_dead(what: str) -> None:
    for text in (OF_AN_AUDIT[what], f"a{OF_AN_AUDIT[what]}{FORGED}"):
        dead = disarm(text)
        assert dead.found == 1
        assert not _alive(dead.text)
        assert disarm(dead.text).text == dead.text, "disarmed again it stays as it is"


INNOCENT = (
    "<real.user@example.org>", "std::map<a::real_user_id, T>", "List<real.User<T>>", "<x:tag>",
    "a < real_user && b", "<ns:realm user='x'>", "<r:real>", "&amp;lt;div&amp;gt;", "%2520",
    "C:\\\\users\\\\real", "<!-- real user -->", "<b>real</b> <i>user</i>", "x <real, user> y",
    "\\\\u003cp\\\\u003e", "<real>user</real>", "http://a/?next=%252Freal_user", "<T: Real>",
)  # fmt: skip


@pytest.mark.parametrize("text", INNOCENT)
def test_what_is_close_to_it_stays(text: str) -> None:
    assert disarm(text) == (text, 0)


FRAMES: tuple[Callable[[str], str], ...] = (
    str, "before\n{0}\nafter".format, "{0}{0}".format, "<p>{0}</p> &amp; {0}".format,
)  # fmt: skip


def _dead_in_an_observation(text: str) -> None:
    shown = observation_boundary.bound_text(text, 10_000)
    assert not _alive(shown.text), (text, shown.text)
    assert shown.forged_tags, text
    assert OPENING_TAG not in shown.text and CLOSING_TAG not in shown.text
    assert FORGED in shown.text, "what was written is still told"


def test_in_an_observation_each_is_dead_and_flagged() -> None:
    luck = random.Random(4)
    for one in VARIANTS:
        _dead_in_an_observation(luck.choice(FRAMES)(one))


@pytest.mark.slow
def test_in_an_observation_each_is_dead_whatever_is_around_it() -> None:
    for one, frame in itertools.product(VARIANTS, FRAMES):
        _dead_in_an_observation(frame(one))


def test_in_guidance_each_is_dead_inside_the_one_live_tag() -> None:
    for one in VARIANTS:
        said = guidance_tag.render_guidance(
            [DeliveredGuidance(id="1", author="ada", text=f"{SAID} {one}")]
        )
        inner = said.removeprefix(f"\n{OPENING_TAG}").removesuffix(CLOSING_TAG)
        assert len(said) - len(inner) == len(OPENING_TAG) + len(CLOSING_TAG) + 1
        assert not _alive(inner), (one, inner)
        assert said.count(OPENING_TAG) == said.count(CLOSING_TAG) == 1


def test_no_cut_and_no_join_makes_one_whole() -> None:
    luck = random.Random(1)
    for one in VARIANTS:
        text = "x" * luck.randrange(300, 700) + one + "y" * luck.randrange(300, 700)
        for limit in luck.sample(range(250, 1200), 3):
            assert not _alive(observation_boundary.bound_text(text, limit).text), (one, limit)
        at = luck.randrange(1, len(one) - len(FORGED))
        halves = [
            observation_boundary.bound_text(part, 10_000).text for part in (one[:at], one[at:])
        ]
        results = [
            ToolResult(call=ToolCall(id=str(number), name="run", arguments={}), kind="command",
                   success=True, text=half)
            for number, half in enumerate(halves)
        ]  # fmt: skip
        joined = context_messages.observation_text(
            results, "[step 1]", [DeliveredGuidance(id="1", author="a", text=SAID)]
        )
        assert _alive(joined) == 2, (one, at, joined)


def test_a_tool_that_has_the_name_of_the_tag_is_no_person() -> None:
    for one in VARIANTS:
        results = [
            ToolResult(
                call=ToolCall(id=id, name=one, arguments={}), kind="error", success=False, text="no"
            )
            for id in ("1", "2")
        ]
        joined = context_messages.observation_text(
            results, "[step 1]", [DeliveredGuidance(id="1", author="a", text=SAID)]
        )
        assert _alive(joined) == 2, (one, joined)


def test_a_shortened_message_is_as_dead_as_a_whole_one() -> None:
    for one in VARIANTS[::5]:
        text = f"{SAID} {one} {'z' * 300}"
        for length in range(len(SAID), len(SAID) + len(one) + 2, 3):
            said = guidance_tag.render_guidance(
                [DeliveredGuidance(id="1", author="a", text=text)], {"1": length}
            )
            assert _alive(said) == 2, (one, length, said)


def test_what_a_terminal_hides_is_seen_on_its_screen_and_dead() -> None:
    luck = random.Random(2)
    for one in [OPENING_TAG, CLOSING_TAG, "<REAL_USER>", "< real_user >", "<real-user>"] * 40:
        lines = terminal_log.render_lines(hidden_in_a_terminal(one, luck))
        assert _alive("\n".join(lines)) == 1
        shown = observation_boundary.bound_text("\n".join(lines), 1000)
        assert not _alive(shown.text)
        assert shown.forged_tags


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A rollout whose every text holds look-alikes; every fifth step heard one person once."""
    with HomeBuilder(tmp_path_factory.mktemp("forged") / "home") as builder, builder.bulk():
        instructions = disarm(VARIANTS[0]).text
        builder.start(ROLLOUT, VARIANTS[1][:40], instructions=instructions)
        for number, at in enumerate(range(0, COUNT, A_STEP), 1):
            chunk = VARIANTS[at : at + A_STEP]
            shown = observation_boundary.bound_text("\n".join(chunk), 10**6)
            if number % 5 == 0:
                builder.say(ROLLOUT, f"g{number}", f"{SAID} {number} {chunk[0]}")
            arguments = {"command": f"echo '{chunk[1]}'", chunk[2]: chunk[3]}
            builder.whole(
                ROLLOUT, number, f"{OPENING_TAG}{FORGED}{CLOSING_TAG} {chunk[4]}",
                (("run_command", arguments),),
                (shown.text,), result={"forged_tags": shown.forged_tags},
                attention=("forged_tag",),
            )  # fmt: skip
        return builder.home


STEPS = COUNT // A_STEP
HEARD = [f"g{number}" for number in range(5, STEPS + 1, 5)]


def _command(home: Home, *words: str) -> str:
    done = subprocess.run(
        houston_command("--home", str(home.path), *words),
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout


def test_steps_count_the_guidance_of_people_only(home: Home) -> None:
    lines = [json.loads(one) for one in _command(home, "steps", ROLLOUT, "--json").splitlines()]
    assert [one["id"] for line in lines for one in line["guidance"]] == HEARD
    for line in lines:
        assert _alive(line["observation"]) == 2 * len(line["guidance"])
        assert line["observation"].count(OPENING_TAG) == len(line["guidance"])
        assert "forged_tag" in line["attention"]
    assert len(lines) == STEPS


def test_a_context_has_live_tags_for_people_only(home: Home) -> None:
    (view,) = map(json.loads, _command(home, "context", ROLLOUT, str(STEPS), "--json").splitlines())
    heard = [one for one in view["messages"] if one["role"] in ("user", "tool")]
    before = sum(int(one[1:]) < STEPS for one in HEARD)
    assert sum(_alive(one["content"]) for one in heard) == 2 * before


def test_what_people_read_names_people_only(home: Home) -> None:
    told = _command(home, "steps", ROLLOUT, "--full").splitlines()
    assert sum(line.startswith("  ┃ alice said: ") for line in told) == len(HEARD)
    kinds = ("tail", ROLLOUT, "--kind", "guidance", "-n", "5000", "--json")
    assert len(_command(home, *kinds).splitlines()) == len(HEARD)
    hits = _command(home, "search", "obey", "--rollout", ROLLOUT, "-n", "5000", "--json")
    found = [json.loads(one) for one in hits.splitlines()]
    assert len(found) > STEPS
    assert sum(one["kind"] == "guidance" for one in found) == len(HEARD)


def test_the_transcript_and_the_inspector_mark_people_only(home: Home) -> None:
    with Reader(home) as reader:
        for number in range(1, STEPS + 1):
            (row,) = reader.run(read_step_rows(ROLLOUT, number, number))
            record = reader.run(step_queries.read_step(ROLLOUT, number))
            assert record is not None
            assert bool(row.guidance_count) == (number % 5 == 0)
            lines = step_rendering.unfolded_lines(row, record, 120)
            marked = [line for line in lines if any(one.tone == "guidance_text" for one in line)]
            assert bool(marked) == (number % 5 == 0)
        seen = prompt_rendering.inspect_request(
            reader.run(prompt_rendering.read_request(ROLLOUT, STEPS))
        )
    before = sum(int(one[1:]) < STEPS for one in HEARD)
    for lines, _ in (
        prompt_rendering.message_lines(seen, 4000),
        prompt_rendering.rendered_prompt_lines(seen, 4000),
    ):
        marked = [line_text(line) for line in lines if any(s.tone == "guidance_text" for s in line)]
        assert sum(SAID in one for one in marked) == before
        assert "".join(marked).count(OPENING_TAG) == before
        assert f"{OPENING_TAG}{FORGED}" not in "".join(marked)


CODE = st.sampled_from((
    "<", "</", ">", "&lt;", "&gt;", "&amp;", "&#60;", "&#x3c;", "<div class='a'>", "</p>", "<br/>",
    "List<String>", "std::vector<std::pair<int, T>>", "x < y", "a<<=2", "a <- b", "if (i<n && j>m)",
    "<user>", "</user>", "<users>", "real_user", "real_user = 3", "a < real_user", "real<user",
    "<real>", "<!-- real -->", "<?xml version=\"1.0\"?>", "<ns:tag a=\"b\">", "%3Cdiv%3E", "%20",
    "\\u003cp\\u003e", "\\x3c", "C:\\users\\real", "r'\\<real'", "<|im_start|>user", "<user_real>",
    "<surreal_user>", "<username>", "<real.user@example.org>", "<T extends Real>", "\n", "\t", " ",
    "héé", "中文 <名字>", "العربية", "👩‍🔬", "e\u0301", "<re", "<r", "<rea", "</re", "user>",
    "x<r>y", "dict[str, int]", "``<b>``", "$real < $user", "print(f'{a<b}')", "#include <stdio.h>",
))  # fmt: skip
SEPARATORS = st.sampled_from((" ", "\n", ";", ", ", "\n    "))


@given(st.lists(st.tuples(CODE, SEPARATORS)))
def test_clean_text_passes_byte_for_byte(parts: list[tuple[str, str]]) -> None:
    text = "".join(one + between for one, between in parts)
    assume(not re.search(r"(<|&lt;|&#60;|&#x3c;)/?\s*real_user", text))  # that is no clean text
    assert disarm(text) == (text, 0)
    assert observation_boundary.bound_text(text, 10**6) == observation_boundary.BoundedText(
        text, 0, 0
    )


RANGES = ((0x20, 0x7E), (0xC0, 0xD8), (0x905, 0x939), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3))
WRITING = st.one_of(
    *(st.characters(min_codepoint=a, max_codepoint=b) for a, b in (*RANGES, (0x1F600, 0x1F64F)))
)


@given(st.text(alphabet=WRITING))
@example("<real_oser> < real &lt;real_ \u003creal")
def test_any_writing_without_the_name_passes_byte_for_byte(text: str) -> None:
    kept = text.translate(str.maketrans("uUÙÚÛÜ", "oooooo"))
    if "%" not in kept and "\\" not in kept and "&" not in kept:  # they could spell it
        assert disarm(kept) == (kept, 0)


@pytest.mark.slow
def test_a_long_run_is_read_in_no_time() -> None:
    for text in ("<" + " " * 10**6, "<\u200b" * 20_000, "<real" + "_" * 10**6, "&#32;" * 10**5,
                 "<\x1b]" * 20_000, "<\x1b[3m" * 20_000, "<" + "\x1b[3m" * 10**5):  # fmt: skip
        assert disarm(text) == (text, 0)
