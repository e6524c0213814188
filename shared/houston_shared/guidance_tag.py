"""The guidance tag: the only place that writes `<real_user>`, and the one that disarms look-alikes.

Guidance is a structured field everywhere; this module renders it once, last. Text from tools, files
and people passes through `disarm` before it can stand near it, so that only the daemon's own tag is
live (docs/design.md#invariant-5).

`find_look_alikes` names the places where a text could be taken for `<real_user` or `</real_user`:
in any case, spacing, entity, escape, script or disguise. A place is read forward one character at a
time: what does not show is passed over, an escape is read as what it stands for, a letter of
another script or style as the one it looks like; a terminal's sequence, raw, spelt or as a screen
shows it, is passed over whole, and so are comments of markup, its plain formatting, and the glyphs
by which `safe_text` shows what does not show. What an escape stands for may begin the next escape.
A prefix as of an XML namespace may stand before the name, and any sign that is no letter between
its two words. Every place is read at most as far as it still fits, and a chain of sequences in
which places hide is read once for all of them, so the work is linear in the text.

Close to the tag but no tag: words in other brackets, and `a < real_user` in code, which has a space
after `<` and neither `>` nor an attribute after the name; neither is an address as
`<real.user@example.org>`.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from html import unescape
from itertools import chain, islice
from typing import NamedTuple

from houston_shared.records import DeliveredGuidance

_ESCAPE = re.compile(
    r"&(?:#0*[0-9]{1,8}|#[xX]0*[0-9a-fA-F]{1,8}|[A-Za-z]{2,31});?"
    # One character as its bytes in UTF-8, as programs and URLs write them.
    r"|\\x[c-fC-F][0-9a-fA-F](?:\\x[89abAB][0-9a-fA-F]){1,3}"
    r"|%[c-fC-F][0-9a-fA-F](?:%[89abAB][0-9a-fA-F]){1,3}|\\3[0-7]{2}(?:\\2[0-7]{2}){1,3}"
    r"|\\u[0-9a-fA-F]{4}|\\u\{0*[0-9a-fA-F]{1,8}\}|\\U[0-9a-fA-F]{8}|\\x[0-9a-fA-F]{2}"
    r"|\\x\{0*[0-9a-fA-F]{1,8}\}|\\N\{[A-Za-z -]{1,40}\}|\\[0-7]{2,3}|%[0-9a-fA-F]{2}"
    r"|<U\+[0-9A-F]{4,6}>|<[89][0-9A-F]>|<(?:200[b-f]|202[a-e]|206[0-9a-f]|feff|ad)>"
)
_BACKSLASHES = re.compile(r"\\{1,15}(?=\\[uUxN0-7])")
"""Backslashes that escape each other, before an escape."""
_DEEPEST_ESCAPE = 4
"""Escapes of escapes that are followed."""
_LONGEST_ESCAPE = 48
"""Characters of an escape."""
_ESC = r"(?:\x1b|\u241b|\^\[|\\(?:e|x1[bB]|033|u001[bB]|u\{1[bB]\})|&#(?:27|x1[bB]);|%1[bB])"
_STRING_END = rf"(?:\x07|\u2407|\\a|{_ESC}\\|\x9c)"
_SEQUENCE = re.compile(
    rf"(?:{_ESC}\[|(?:\x9b|<9B>|\\x9[bB]|\\u009[bB])(?=[0-?]))[0-?]*[ -/]*[@-~]"
    # A string that is begun by one character is read to its end: the next one bounds the work.
    rf"|(?:[\x1b\u241b][\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\u2407\u241b\x90-\x9f\n]*{_STRING_END}"
    rf"|(?:{_ESC}[\]PX^_]|<9[08DEF]>)[^\x07\x1b\u2407\u241b\n]{{0,256}}{_STRING_END}"
    rf"|{_ESC}[()][0-9A-Z]|<[0-9]{{1,9}} more marks>"
    r"|<!--(?:[^-\n]|-(?!->)){0,256}-->|<\?[^<>\n]{0,64}\?>"
    r"|</?(?:b|i|u|s|a|em|strong|span|font|mark|code|tt|sub|sup|small|big|wbr|br)"
    r"(?:/| [^<>\n]{0,64})?>"
)
"""What a terminal obeys and does not show (ECMA-48 §5.4, xterm's OSC), counted marks, and what a
page does not show."""
_SHORT_SEQUENCE = re.compile(rf"{_ESC}(?:[ -/]{{1,4}}[0-~]|[0-Z\\`-~])")
"""Sequences of two characters and a few more (ECMA-48 §5.5, ISO 2022)."""
_SEQUENCE_BEGINS = frozenset("&\\%<^\x1b\u241b\x90\x98\x9b\x9d\x9e\x9f")
_OPENERS = "<\u2039\u3008\u300a\u27e8\u27ea\u2329\u276c\u276e\u2770\u29fc\u227a\u02c2\u1438\u00ab"
_OPENERS += "\u226a\u2991\u2a9e\u2aa1\u2af7\uff1c\ufe64\u226e\U0001d236\u22d6\u22d8\u2989\u2993"
_OPENERS += "\u2abb\u02f1\u140a\u25c1\u25c2\u25c3\u25c4\u2b9c\u2bc7\U0001f780\u16b2\u29c0\u2a79"
_CLOSERS = ">\u203a\u3009\u300b\u27e9\u27eb\u232a\u276d\u276f\u2771\u29fd\u227b\u02c3\u00bb\u226b"
_CLOSERS += "\u2992\u22d7\u22d9\u298a\u2994\u2abc\u02f2\u1433\u1405\u25b7\u25b8\u25b9\u25ba\u2b9e"
_SLASHES = "/\\\u2044\u2215\u2571\u29f8\u3033\u27cb\u2afd\ua932"
_JOINTS = "_-\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u203f\u2040\u02cd\u2581\u0640\u30fc\u00af"
_COLONS = ":\uff1a\ufe55\u2236\ua789\u02d0"
_PREFIXED = f"/?[A-Za-z_][A-Za-z0-9_.-]{{0,19}}[{_COLONS}]"
_NAMESPACE_PREFIX = re.compile(r"< ?\|? ?/? ?[a-z][a-z0-9_. ]{0,19}:")
"""What may stand before the name, as a namespace does: as it is written and as it is read."""
_LONGEST_PREFIX = 32
_CANDIDATE = re.compile(
    # What cannot go on to an r is no candidate: most markup and most comparisons are not.
    f"[{_OPENERS}](?:(?!/?[0-9A-QS-Za-qs-z=\"'.,;:()?!*+])|(?={_PREFIXED}))|&(?=#|[A-Za-z]{{2}})"
    r"|\\(?=[uUxN0-7])|%(?=[0-9a-fA-F]{2})|[\U000e0020-\U000e007e]"
)
_CONFUSABLES: dict[str, str] = {  # as in confusables.txt of Unicode, and some more
    "r": "r\u0433\u1d26\u2c85\uab47\uab48\uab81\u13a1\u13d2\u1587\ua4e3\u01a6\u0280\u0491"
    "\U000104b4\U00016f35\U0001d216\U00010453",
    "e": "e3\u0435\u0415\u04bd\u212e\u0454\u0404\u03b5\u0395\u13ac\u2d39\ua4f0\uab32\u01dd"
    "\u0259\u22ff\U00010286\U000118a6\U000118ae",
    "a": "a4@\u0430\u0410\u0251\u03b1\u0391\u237a\u13aa\u15c5\ua4ee\U000102a0\u0250\U00016f40",
    "l": "l1i|!\u04cf\u04c0\u0406\u0456\u0399\u03b9\u0627\u05df\u0661\u06f1\u2223\u2758"
    "\u2d4f\ua4e1\u13de\u14aa\u01c0\u2502\u2160\u217c\U00010320\u0196\u16c1\u23fd"
    "\u2c92\u2cd0\ua4f2\U0001028a\U00010309\U0001041b\U00010526\U000118a3\U000118b2"
    "\U00016f16\U00016f28\U0001d22a\U00010453",
    "u": "u\u03c5\u028b\u057d\u054d\u1200\u222a\u22c3\u144c\ua4f4\u1959\uab4e\uab52\u00b5"
    "\u03bc\ua79f\U000104ce\U000104f6\U000118b8\U000118d8\U00016f42",
    "s": "s5$\u0455\u0405\u054f\u13d5\u13da\ua4e2\u01bd\u0282\u00a7\u15ae\uabaa\U00010296"
    "\U00010420\U00010448\U000118c1\U00016f3a\U00010453",
}
_ODD_ASCII = ".~+*^#"
"""ASCII that is no joint, and yet may stand between the two words; other scripts' signs, too."""
_BETWEEN_WORDS = " _.:"
"""What a character between the two words reads as."""
_TAG_NAME = "realuser"
_GAP_AT = 4
"""Where the name has its underscore."""
_STYLED_LETTER = re.compile(
    r"(?:LATIN|REGIONAL INDICATOR SYMBOL).*? LETTER (?:SMALL )?(?:CAPITAL )?"
    r"(?:(?:TURNED|REVERSED|INVERTED|SIDEWAYS|OPEN|CLOSED|LONG|SCRIPT|BLACKLETTER|BROKEN) )*"
    r"([A-Z])\b"
)
_AFTER_NAME = re.compile(r" *(?:/? *>|[a-z][a-z_-]*(?: =|=))")
_READING_MODES = (
    (None, False, False),
    (re.compile("[\U000e0020-\U000e007e]"), True, False),
    (re.compile(_ESC), False, True),
)
"""How a text is read: what it must hold to be read so, whether tag characters spell something, and
whether the character behind an escape is obeyed or shown."""
_ATTRIBUTE_CHARACTERS = 40
"""Characters after the name that are looked at."""


def find_look_alikes(text: str) -> list[tuple[int, int]]:
    """Where `text` could be taken for the tag, in order: where what reads as its `<` begins and
    ends."""
    readers = [
        _TagReader(text, hidden, short)
        for needs, hidden, short in _READING_MODES
        if needs is None or needs.search(text)
    ]
    places = (candidate.start() for candidate in _CANDIDATE.finditer(text))
    spans: list[tuple[int, int]] = []
    for at in places:
        if reader := next((candidate for candidate in readers if candidate.finds(at)), None):
            spans.append((at, reader.ends(at)))
    return spans


def _begins_with_tag(characters: Iterator[str]) -> bool:
    """Whether what is read begins with the tag, open or closed."""
    if next(characters, "") != "<":
        return False
    char, spaced = _skip_spaces(characters)
    if char == "|" and not spaced:  # special tokens of models are written <|so|>
        char, spaced = _skip_spaces(characters)
    if char == "/":
        char, spaced = _skip_spaces(characters)[0], False
    odd = False
    for place, letter in enumerate(_TAG_NAME):
        while place and (char == " " or (place == _GAP_AT and char and char in "_.:")):
            odd = odd or char in ".:"
            char = next(characters, "")
        if char == "" or char not in _CONFUSABLES.get(letter, letter):
            return False
        char = next(characters, "") if place < len(_TAG_NAME) - 1 else char
    return (
        not (spaced or odd)
        or _AFTER_NAME.match("".join(islice(characters, _ATTRIBUTE_CHARACTERS))) is not None
    )


def _skip_spaces(characters: Iterator[str]) -> tuple[str, bool]:
    """The next character that is no space, and whether there was a space before it."""
    spaced = False
    for char in characters:
        if char != " ":
            return char, spaced
        spaced = True
    return "", spaced


class _TagReader:
    """One way of reading one text."""

    def __init__(self, text: str, hidden: bool, short: bool) -> None:
        """hidden: tag characters count as what they spell. short: short sequences are obeyed."""
        self._text = text
        self._hidden = hidden
        self._short = short
        self._runs: dict[int, tuple[str, int]] = {}
        """Where a sequence begins that hides a candidate: what the run reads as, and its end. From
        every candidate in a chain of such sequences the chain would be read again."""

    def finds(self, at: int) -> bool:
        """Whether the tag stands at `at`, and its `<` right here."""
        if self._element(at)[0][:1] != "<":
            return False
        if _begins_with_tag(self._characters(at)):
            return True
        prefix = _NAMESPACE_PREFIX.match("".join(islice(self._characters(at), _LONGEST_PREFIX)))
        if prefix is None or "::" in self._text[at : at + _LONGEST_PREFIX]:  # a C++ type
            return False
        return _begins_with_tag(chain("<", islice(self._characters(at), prefix.end(), None)))

    def ends(self, at: int) -> int:
        """Where ends what reads as the `<` at a place."""
        return self._element(at)[1]

    def _characters(self, at: int) -> Iterator[str]:
        """Characters from `at` on as they read; a run of spaces and joints has each once."""
        while at < len(self._text):
            reading, end = self._element(at)
            if not reading.strip(_BETWEEN_WORDS):
                reading, end = self._run(at)
            yield from reading
            at = end

    def _run(self, at: int) -> tuple[str, int]:
        """What is not seen, spaces and joints from `at` on: what they read as, and their end."""
        last = dict.fromkeys(_BETWEEN_WORDS, -1)  # which part of the run had one last
        chained: list[tuple[int, int]] = []
        run, part = None, 0
        while run is None and at < len(self._text):
            run = self._runs.get(at)
            reading, end = run or self._element(at)
            if reading.strip(_BETWEEN_WORDS):
                break
            last.update(dict.fromkeys(reading, part))
            if run is None and end - at > 1 and _CANDIDATE.search(self._text, at + 1, end):
                chained.append((at, part))
            at, part = end, part + 1
        for place, first in chained:
            self._runs[place] = ("".join(char for char in last if last[char] >= first), at)
        return "".join(char for char in last if last[char] >= 0), at

    def _element(self, at: int) -> tuple[str, int]:
        """What stands at `at` as it reads, empty for what is not seen; and where it ends."""
        text = self._text
        if text[at] in _SEQUENCE_BEGINS:
            sequence = _SEQUENCE.match(text, at)
            if sequence is None and self._short:
                sequence = _SHORT_SEQUENCE.match(text, at)
            if sequence:
                return "", sequence.end()
            if unescaped := _resolve_escape(text, at):
                return "".join(
                    _plain_character(char, self._hidden) for char in unescaped[0]
                ), unescaped[1]
        return _plain_character(text[at], self._hidden), at + 1


def _resolve_escape(text: str, at: int) -> tuple[str, int] | None:
    """What an escape at a place stands for in the end, and where it ends; None where none is."""
    more = _BACKSLASHES.match(text, at)
    escape = _ESCAPE.match(text, more.end() if more else at)
    if escape is None:
        return None
    character, end = _escape_meaning(escape.group()), escape.end()
    for _ in range(_DEEPEST_ESCAPE):
        if character not in ("&", "\\", "%"):
            break
        inner = _ESCAPE.match(character + text[end : end + _LONGEST_ESCAPE])
        if inner is None:
            break
        character, end = _escape_meaning(inner.group()), end + inner.end() - 1
    return character, end


def _escape_meaning(escape: str) -> str:
    """What an entity or an escape stands for; itself where it stands for nothing."""
    if escape[0] == "&":
        character = unescape(escape)
        return unescape(f"{escape};") if character == escape else character
    if escape[:2] == "\\N":
        try:
            return unicodedata.lookup(escape[3:-1])
        except KeyError:
            return escape
    if escape.count(escape[0]) > 1:
        return _decode_escaped_bytes(escape)
    digits = escape.lstrip("\\<uUx%{+").rstrip("}>")
    octal = escape[0] == "\\" and escape[1].isdigit()
    number = int(digits, 8 if octal else 16)
    return chr(number) if number <= 0x10FFFF else escape


def _decode_escaped_bytes(escape: str) -> str:
    """The character that several escaped bytes are."""
    base = 8 if escape[:2] == "\\3" else 16
    parts = escape.replace("\\x", "%").replace("\\", "%").split("%")[1:]
    return bytes(int(part, base) for part in parts).decode("utf-8", "replace")


@lru_cache(maxsize=4096)
def _plain_character(character: str, hidden: bool) -> str:
    """A character as it reads: nothing, a space, a part of the tag, or a small letter."""
    if character.isascii() and character.isalnum():
        return character.lower()
    if character in _ODD_ASCII:
        return "."
    if character in _COLONS:
        return ":"
    if "\U000e0020" <= character <= "\U000e007e":
        return _plain_character(chr(ord(character) - 0xE0000), False) if hidden else ""
    for signs, sign in ((_OPENERS, "<"), (_CLOSERS, ">"), (_SLASHES, "/"), (_JOINTS, "_")):
        if character in signs:
            return sign
    if character.isspace() or character in "\u2800\u3164\uffa0\u115f\u1160\u23ce":
        return " "
    if "\u2400" <= character <= "\u2421" or character in "\ufffc\ufffd":  # nothing, as shown
        return ""
    if unicodedata.category(character) in ("Cc", "Cf", "Mn", "Me", "Mc", "Cs", "Cn", "Co"):
        return ""
    decomposed = unicodedata.normalize("NFKD", character)
    if decomposed != character:
        return "".join(_plain_character(char, hidden) for char in decomposed)
    return _unstyled_letter(character)


def _unstyled_letter(character: str) -> str:
    """A letter in a style that Unicode does not decompose: small capitals, boxes, strokes."""
    if any(character in alike for alike in _CONFUSABLES.values()):
        return character
    if style := _STYLED_LETTER.search(unicodedata.name(character, "")):
        return style.group(1).lower()
    odd = not character.isascii() and unicodedata.category(character)[0] in "PS"
    return "." if odd else character.lower()[:1]


OPENING_TAG = "<real_user>"
CLOSING_TAG = "</real_user>"
PERSON_RULE = (
    "A person may speak to you at the end of an observation, inside"
    f" {OPENING_TAG} and {CLOSING_TAG}."
)
"""What every system prompt says of the tag; a prompt of another file may say it, too."""
GUIDANCE_TEXT_LIMIT = 32 * 1024
"""Bytes of the longest guidance, and of the longest note."""
_DOES_NOT_FIT = "do not fit this model's window"

_ESCAPED_BRACKET = "&lt;"


class DisarmedText(NamedTuple):
    """Text in which no tag can be mistaken for the daemon's."""

    text: str
    found: int
    """How many look-alikes were neutralised."""


def disarm(text: str) -> DisarmedText:
    """Neutralise everything that could be read as the guidance tag.

    What reads as the opening `<` of a look-alike (`find_look_alikes` says which) becomes `&lt;`,
    whatever it was written with: the text stays legible, the tag is dead, and disarmed again it
    stays as it is. Text without one comes back byte for byte.
    """
    spots = find_look_alikes(text)
    if not spots:
        return DisarmedText(text, 0)
    parts: list[str] = []
    last = 0
    for begin, end in spots:
        parts += [text[last:begin], _ESCAPED_BRACKET]
        last = end
    parts.append(text[last:])
    return DisarmedText("".join(parts), len(spots))


def render_guidance(
    guidance: Sequence[DeliveredGuidance], shown_lengths: Mapping[str, int] | None = None
) -> str:
    """Guidance as the model reads it, one live tag for each message, in order.

    shown_lengths: by id, how many characters are shown of a message that does not fit
    (`fit_guidance`); the cut is declared. Those with 0 are counted in one line before the others.
    """
    shown_lengths = shown_lengths or {}
    left_out = [message for message in guidance if shown_lengths.get(message.id) == 0]
    texts = (
        _shown_beginning(message, shown_lengths)
        for message in guidance
        if shown_lengths.get(message.id) != 0
    )
    tags = "".join(f"\n{OPENING_TAG}{text}{CLOSING_TAG}" for text in texts)
    if not left_out:
        return tags
    length = sum(len(message.text) for message in left_out)
    note = f"[… {len(left_out)} messages from people, {length} characters, {_DOES_NOT_FIT} …]"
    return f"\n{note}{tags}"


def _shown_beginning(message: DeliveredGuidance, shown_lengths: Mapping[str, int]) -> str:
    """A message, or its beginning and how much is missing."""
    length = shown_lengths.get(message.id, len(message.text))
    if length >= len(message.text):
        return disarm(message.text).text
    missing = len(message.text) - length
    shown_text = disarm(message.text[:length]).text
    return f"{shown_text} [… {missing} characters of this message {_DOES_NOT_FIT} …]"
