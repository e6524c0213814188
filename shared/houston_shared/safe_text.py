"""Text that cannot harm a terminal: the only type that a widget or a printed line accepts.

Control characters (C0 but newline and tab, DEL, C1), bidirectional controls and other invisible
format characters become visible glyphs; lone surrogates become U+FFFD. Markup is never interpreted:
a SafeText is plain text, and who styles it does so with spans beside it.
"""

import re

_C0_PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if code not in (0x09, 0x0A)}
_PICTURES = {
    **_C0_PICTURES,
    0x7F: "\u2421",
    **{code: f"<{code:02X}>" for code in range(0x80, 0xA0)},
    **{
        code: f"<U+{code:04X}>"
        for code in (
            0x061C,
            *range(0x200B, 0x2010),
            *range(0x2028, 0x202F),
            *range(0x2060, 0x2070),
            0xFEFF,
            *range(0xFFF9, 0xFFFC),
        )
        if code not in (0x200C, 0x200D)  # joiners that scripts and emoji need
    },
    **{code: f"<U+{code:X}>" for code in range(0xE0000, 0xE0080)},
}
_HOSTILE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def _picture(match: re.Match[str]) -> str:
    return _PICTURES.get(ord(match.group()), "\ufffd")


class SafeText(str):
    """A string that went through `safe`. Build one only with `safe` or by joining SafeText."""

    __slots__ = ()

    def __add__(self, other: str) -> "SafeText":
        """Join; what is added goes through `safe` if it has not."""
        return SafeText(str.__add__(self, safe(other)))


def safe(text: str | bytes) -> SafeText:
    """Make any text safe to show; bytes are read as UTF-8 with U+FFFD for what is not.

    Clean text comes back unchanged. Newline and tab stay.
    """
    if isinstance(text, SafeText):
        return text
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    return SafeText(_HOSTILE.sub(_picture, text))


def safe_line(text: str | bytes) -> SafeText:
    """Make text safe and put it on one line: newlines and tabs become glyphs or spaces."""
    return SafeText(safe(text).replace("\n", "\u23ce").replace("\t", " "))
