"""Code in colours: Pygments says what each piece is, here it becomes one of our tones.

It is asked for tokens only, of text that is safe already; nothing that it could draw is used.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from houston_console.app.drawing.lines import Line, Span, Tone
from houston_shared.safe_text import SafeText, safe_line

MOST = 64 * 1024
"""Characters of one side of a diff that are coloured; more is shown plain."""
_TONES: tuple[tuple[str, Tone], ...] = (
    ("Token.Comment", "code_comment"),
    ("Token.Literal.String", "code_string"),
    ("Token.Literal.Number", "code_number"),
    ("Token.Keyword", "code_keyword"),
    ("Token.Operator.Word", "code_keyword"),
    ("Token.Name.Function", "code_name"),
    ("Token.Name.Class", "code_name"),
    ("Token.Name.Decorator", "code_name"),
    ("Token.Name.Tag", "code_keyword"),
    ("Token.Generic.Heading", "code_name"),
)


def coloured(path: str, rows: Sequence[SafeText]) -> list[Line]:
    """Lines of one file, each as spans; plain where the kind of file is not known."""
    text = "\n".join(rows)
    lexer = _lexer(path.rpartition("/")[2]) if len(text) <= MOST else None
    lines = _lines(lexer, text) if lexer is not None else []
    if [("".join(part.text for part in one)) for one in lines] != list(rows):
        return [(Span(one),) for one in rows]  # a lexer that changes what it reads is not believed
    return lines


def _lines(lexer: Any, text: str) -> list[Line]:
    found: list[list[Span]] = [[]]
    for kind, value in lexer.get_tokens(text):
        tone = _tone(str(kind))
        for number, piece in enumerate(value.split("\n")):
            if number:
                found.append([])
            if piece and found[-1] and found[-1][-1].tone == tone:
                piece = found[-1].pop().text + piece
            if piece:
                found[-1].append(Span(safe_line(piece), tone))
    return [tuple(one) for one in found]


@lru_cache(maxsize=512)
def _tone(kind: str) -> Tone:
    return next((tone for begins, tone in _TONES if kind.startswith(begins)), "text")


@lru_cache(maxsize=64)
def _lexer(name: str) -> Any:
    from pygments.lexers import get_lexer_for_filename  # only here: 30 ms that few screens need
    from pygments.util import ClassNotFound

    try:
        return get_lexer_for_filename(name, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
