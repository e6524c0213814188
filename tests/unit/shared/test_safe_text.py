"""Nothing that a terminal would obey passes `safe`; what a person wrote does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from houston_shared.safe_text import SafeText, safe, safe_cells, safe_line

HOSTILE = (
    {*map(chr, range(32))} - {"\n", "\t"}
    | {*map(chr, range(0x7F, 0xA0))}
    | {*map(chr, range(0x202A, 0x202F))}
    | {*map(chr, range(0x2066, 0x206A))}
)


@given(st.one_of(st.text(), st.binary()))
def test_no_hostile_character_passes(text: str | bytes) -> None:
    shown = safe(text)
    assert isinstance(shown, SafeText)
    assert not set(shown) & HOSTILE
    shown.encode()  # no lone surrogate


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred", "␛[31mred"),
        ("\x1b]52;c;aGk=\x07", "␛]52;c;aGk=␇"),
        ("a\x9b31m", "a<9B>31m"),
        ("a\u202eb", "a<U+202E>b"),
        ("a\x7fb", "a␡b"),
        ("\ud800", "\ufffd"),
        (b"bad \xff", "bad \ufffd"),
        ("ad\u200bmin", "ad<U+200B>min"),
        ("a\U000e0041", "a<U+E0041>"),
        ("a\ufe01", "a<U+FE01>"),
        ("one\u2028two", "one<U+2028>two"),
        ("a" + "\u0301" * 500, "a" + "\u0301" * 8 + "<492 more marks>"),
    ],
)
def test_hostile_text_becomes_visible(hostile: str | bytes, shown: str) -> None:
    assert safe(hostile) == shown


@pytest.mark.parametrize(
    "text",
    ["plain", "tab\there\n", "中文 → é 👩‍🔬", "[/not markup]", "a\u0301", "न\u200dही", "❤\ufe0f"],
)
def test_clean_text_stays(text: str) -> None:
    assert safe(text) == text


def test_one_line_is_one_line() -> None:
    assert "\n" not in safe_line("a\nb\tc")
    assert isinstance(safe("a") + "\x1b", SafeText)
    assert safe("a") + "\x1b" == "a␛"


@given(st.text())
def test_there_is_no_other_way_to_one(text: str) -> None:
    texts = (SafeText(text), safe("") + text, SafeText(text[::-1]), safe(safe(text)))
    for member in texts:
        assert type(member) is SafeText
        assert not set(member) & HOSTILE
    assert SafeText(texts[0]) is texts[0]


@given(st.text())
def test_an_editor_counts_the_same_characters(text: str) -> None:
    shown = safe_cells(text)
    assert len(shown) == len(text)
    assert not set(shown) & HOSTILE - {"\n"}
    assert all(
        before == after
        for before, after in zip(text, shown, strict=True)
        if before.isascii() and before >= " " and before != "\x7f"
    )
