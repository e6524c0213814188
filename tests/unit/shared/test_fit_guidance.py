"""What is shown of what people said when a window is too small for all of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from houston_shared import guidance_tag
from houston_shared.context_messages import BEGINNING_CHARACTERS, fit_guidance, utf8_length
from houston_shared.records import DeliveredGuidance


def messages(*texts: str) -> list[DeliveredGuidance]:
    return [DeliveredGuidance(id=f"g{n}", author="ada", text=text) for n, text in enumerate(texts)]


LONG = "word " * 2_000


@pytest.mark.parametrize(
    ("name", "texts", "room", "shown", "left_out"),
    [
        ("what fits is whole", ["a", "b"], 1_000, [1, 1], 0),
        ("one too long is cut", [LONG], 2_000, [1_800], 0),
        ("the older is shortened first", [LONG, "b" * 900], 2_000, [BEGINNING_CHARACTERS, 900], 0),
        (
            "oldest first",
            ["a" * 900, "b" * 900, "c" * 900],
            2_500,
            [BEGINNING_CHARACTERS, 900, 900],
            0,
        ),
        ("the newest has priority", [LONG, LONG], 3_000, [BEGINNING_CHARACTERS, 2_000], 0),
        ("many small ones", ["small " * 5] * 500, 1_000, None, 400),
        ("hardly any room", ["old", LONG], 300, [0, 17], 1),
        ("no room at all", ["a" * 90, "b" * 90], 0, [0, 0], 2),
    ],
)
def test_shown(
    name: str, texts: list[str], room: int, shown: list[int] | None, left_out: int
) -> None:
    guidance = messages(*texts)
    limits = fit_guidance(guidance, room)
    lengths = [limits.get(message.id, len(message.text)) for message in guidance]
    for length, least in zip(lengths, shown or [], strict=bool(shown)):
        assert length >= least, (name, lengths)
    assert lengths.count(0) >= left_out, name
    text = guidance_tag.render_guidance(guidance, limits)
    if lengths[-1] and room:
        assert utf8_length(text) <= room, name
    whole = [message for message in guidance if message.id not in limits]
    assert all(f"<real_user>{message.text}</real_user>" in text for message in whole)
    assert text.count("do not fit this model's window") == (
        sum(n > 0 for n in limits.values()) + (0 in limits.values())
    ), "every cut is declared"


@given(
    st.lists(st.text(st.sampled_from("ab<é😀&\n"), min_size=1, max_size=600), max_size=30),
    st.integers(0, 3_000),
)
def test_what_is_shown_fits_and_newer_words_come_first(texts: list[str], room: int) -> None:
    guidance = messages(*texts)
    shown = fit_guidance(guidance, room)
    assert shown == fit_guidance(guidance, room)
    text = guidance_tag.render_guidance(guidance, shown)
    none = dict.fromkeys((message.id for message in guidance), 0)
    assert utf8_length(text) <= max(room, utf8_length(guidance_tag.render_guidance(guidance, none)))
    assert text.count("<real_user>") == sum(shown.get(message.id) != 0 for message in guidance)
    shares = [min(shown.get(item.id, len(item.text)) / len(item.text), 1) for item in guidance]
    left_out = [share == 0 for share in shares]
    assert left_out == sorted(left_out, reverse=True), "the oldest are left out"
