"""What may come out of a terminal program of Houston's: everything else is a hostile byte.

Written from what terminals do (ECMA-48, xterm's ctlseqs), not from what Houston filters: it shares
no line with the filters it judges.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable

_SEQUENCE = re.compile(r"\x1b\[([<-?]?)([0-9;:]*)([ -/]*)([@-~])|\x1b\]22;([a-z-]+)\x07")
_MODES = {"7", "25", "1000", "1003", "1004", "1006", "1015", "1016", "1049", "2004", "2026", "2048"}
_MOST = 4
"""Times that one mode is switched in a session: at its start and its end."""
JOINERS = "\u200c\u200d\ufe0e\ufe0f"
"""What does not show and passes: scripts and emoji need it."""

Allowed = Callable[[re.Match[str]], bool]


def in_commands(found: re.Match[str]) -> bool:
    """Sixteen colours, bold, dim, reverse."""
    private, parameters, between, final, pointer = found.groups()
    plain = {"", "0", "1", "2", "7", *map(str, range(30, 38))}
    return (
        final == "m" and not (private or between or pointer) and plain >= {*parameters.split(";")}
    )


def in_traces(found: re.Match[str]) -> bool:
    """What rich paints a trace with: also the bright colours, italics and underlines."""
    private, parameters, between, final, pointer = found.groups()
    plain = {"", *map(str, [*range(5), 7, 39, *range(30, 38), *range(90, 98)])}
    return (
        final == "m" and not (private or between or pointer) and plain >= {*parameters.split(";")}
    )


def on_screen(columns: int, rows: int) -> Allowed:
    """What Textual writes on a screen of that size."""
    modes: Counter[str] = Counter()

    def allowed(found: re.Match[str]) -> bool:
        private, parameters, between, final, pointer = found.groups()
        if pointer:
            return True
        if final == "m":
            return not private and not between and _colours(parameters)
        if final == "H" and not private and not between:
            place = [int(one) for one in parameters.split(";") if one]
            return (
                len(place) in (0, 2)
                and place <= [rows, columns]
                and (place or [0, 0])[-1] <= columns
            )
        if (private == "?" and final in "hl" and not between) or (final, between) == ("p", "$"):
            modes[found.group()] += 1
            return parameters in _MODES and modes[found.group()] <= _MOST
        return final == "u" and private in ("<", ">")

    return allowed


def _colours(parameters: str) -> bool:
    """True colours and simple attributes, never hidden, blinking or of the 256 colours."""
    rest = re.sub(r"[34]8;2;\d{1,3};\d{1,3};\d{1,3}", "0", parameters)
    plain = {"", "0", "1", "2", "3", "4", "7", "9", "22", "23", "24", "27", "29", "39", "49"}
    return {*rest.split(";")} <= plain


def hostile(captured: bytes, allowed: Allowed) -> list[str]:
    """Everything in `captured` that a terminal would obey or that would deceive a reader."""
    try:
        text = captured.decode()
    except UnicodeDecodeError as problem:
        return [f"not UTF-8: {captured[problem.start - 20 : problem.end + 20]!r}"]
    found: list[str] = []

    def judge(match: re.Match[str]) -> str:
        if not allowed(match):
            found.append(f"sequence {match.group()!r} after {text[: match.start()][-40:]!r}")
        return ""

    rest = _SEQUENCE.sub(judge, text)
    for match in _SUSPECT.finditer(rest):
        if not _passes(rest, match.start()):
            around = rest[max(0, match.start() - 30) : match.end() + 30]
            found.append(f"character {match.group()!r} in {around!r}")
    found += [f"flood of marks {flood!r}" for flood in _FLOOD.findall(rest)]
    return found


_FLOOD = re.compile("[\u0300-\u036f]{16,}")


_SUSPECT = re.compile("[^\\n\\t -~\u00a1-\u00ac\u00ae-\u02ff\u2500-\u25ff]")


def _passes(text: str, at: int) -> bool:
    one = text[at]
    if one == "\r":  # a pty writes each line feed as two
        return text[at + 1 : at + 2] in ("\n", "\r")
    if one in JOINERS:
        return True
    unseen = "\u2065\u034f\u115f\u1160\u3164\uffa0\u17b4\u17b5"
    if one in unseen or "\ufe00" <= one <= "\ufe0d" or "\U000e0000" <= one <= "\U000e0fff":
        return False
    return unicodedata.category(one) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


def shown(captured: bytes) -> str:
    """The text between the sequences."""
    return _SEQUENCE.sub("", captured.decode("utf-8", "replace"))
