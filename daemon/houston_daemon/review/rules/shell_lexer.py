"""Words, operators and here-documents of shell text, without what they mean.

A here-document counts only if its `<<` is outside quotes. A quote that is never closed is an
ordinary character. Reading time grows with the length of the text alone, because agents write it.
`shell_commands` interprets the commands.
"""

import re
from typing import Literal, NamedTuple

_HEREDOC = (
    r"(?<!<)<<(?!<)(?P<tabs>-?)[ \t]*"
    r"(?:(?P<sign>['\"])(?P<quoted>[^'\"\n]+)(?P=sign)|\\?(?P<bare>[A-Za-z_][\w.-]*))"
)
_WORD_BOUNDARY = re.compile(
    rf"(?P<blank>(?:[ \t\r]|\\\n)+)|(?P<comment>\#[^\n]*)|(?P<line>\n)|(?P<heredoc>{_HEREDOC})"
    r"|(?P<operator>&&|\|\||\|&|;;|&>>?|[<>]\(|<<<|<>|>[>&|]|<<|<&|[;&|()<>])"
)
"""What stands before a word, and ends it."""
_WORD_PIECE = re.compile(
    r"""(?P<plain>[^ \t\r\n\\'"$;&|()<>]+)|\\(?P<escaped>[^\n])"""
    r"|'(?P<single>[^']*)'|\$'(?P<ansi>(?:[^'\\]|\\.)*)'"
    r"|(?P<arithmetic>\$\(\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)\))"
    r"""|(?P<other>["'$\\])""",
    re.S,
)
"""A part of a word; `other` is a double quote, or stands for itself."""
_IN_QUOTE = re.compile(r"\\.|(?P<opens>\$\()|(?P<closes>\")", re.S)
_IN_SHELL = re.compile(
    rf"\\.|'[^']*(?:'|\Z)|(?P<opens>[(\"])|(?P<closes>\))|(?P<heredoc>{_HEREDOC})"
    r"|(?<![^\s;&|(])#[^\n]*|(?P<line>\n)",
    re.S,
)
_PLAIN_QUOTE = re.compile(r'"((?:[^"\\]|\\.)*)"', re.S)
_ESCAPED = re.compile(r'\\([\\"$`])')


class ShellToken(NamedTuple):
    """One of a text's parts, in its order."""

    kind: Literal["word", "operator", "heredoc"]
    text: str
    """Of a word without its quotes; an operator; the body of a here-document."""


class _HeredocEnd(NamedTuple):
    """How a here-document ends: the token that it fills, its last line."""

    token: int
    word: str
    tabs: bool
    """Whether tabs may stand before that line."""


def shell_tokens(text: str) -> list[ShellToken]:
    """A whole text; blanks, comments and continued lines are left out."""
    return _Lexer(text).lex()


class _Lexer:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.tokens: list[ShellToken] = []
        self.waiting: list[_HeredocEnd] = []
        """Here-documents of this line."""
        self.flat = False
        """Whether commands within double quotes are not looked for any more: one has no end."""

    def lex(self) -> list[ShellToken]:
        while self.at < len(self.text):
            if between := _WORD_BOUNDARY.match(self.text, self.at):
                self.at = between.end()
                self._lex_boundary(between)
            else:
                self.tokens.append(ShellToken("word", self._word()))
        return self.tokens

    def _lex_boundary(self, boundary: re.Match[str]) -> None:
        match boundary.lastgroup:
            case "operator":
                self.tokens.append(ShellToken("operator", boundary[0]))
            case "heredoc":
                self.waiting.append(_heredoc_end(boundary, len(self.tokens)))
                self.tokens.append(ShellToken("heredoc", ""))
            case "line":
                self.tokens.append(ShellToken("operator", "\n"))
                for heredoc in self.waiting:
                    body, self.at = _heredoc_body(self.text, self.at, heredoc)
                    self.tokens[heredoc.token] = ShellToken("heredoc", body)
                self.waiting = []

    def _word(self) -> str:
        parts: list[str] = []
        while piece := _WORD_PIECE.match(self.text, self.at):
            if piece[0] == "\\" and self.text.startswith("\n", piece.end()):
                break  # the line goes on: a blank
            kind = piece.lastgroup or ""
            quoted = self._quoted() if piece[0] == '"' else None
            if quoted is None:
                self.at = piece.end()
                quoted = piece[kind]
            parts.append(quoted)
        return "".join(parts)

    def _quoted(self) -> str | None:
        """What stands in the double quotes that begin here; None where they are never closed."""
        end = -1 if self.flat else _closing_quote(self.text, self.at + 1)
        if end < 0:
            self.flat = True
            closed = _PLAIN_QUOTE.match(self.text, self.at)
            if closed is None:
                return None
            end = closed.end() - 1
        inner = self.text[self.at + 1 : end]
        self.at = end + 1
        return _ESCAPED.sub(r"\1", inner.replace("\\\n", " "))


def _closing_quote(text: str, at: int) -> int:
    """Where the double quote stands that closes those before `at`; -1 where none does. A command
    within, `$(…)`, has quotes and here-documents of its own.
    """
    inside = ['"']
    waiting: list[_HeredocEnd] = []
    while mark := (_IN_QUOTE if inside[-1] == '"' else _IN_SHELL).search(text, at):
        at = mark.end()
        match mark.lastgroup:
            case "opens":
                inside.append(mark[0][-1])
            case "closes":
                inside.pop()
                if not inside:
                    return mark.start()
            case "heredoc":
                waiting.append(_heredoc_end(mark, 0))
            case "line":
                for heredoc in waiting:
                    _, at = _heredoc_body(text, at, heredoc)
                waiting = []
    return -1


def _heredoc_end(opening: re.Match[str], token: int) -> _HeredocEnd:
    return _HeredocEnd(token, opening["quoted"] or opening["bare"], bool(opening["tabs"]))


def _heredoc_body(text: str, at: int, end: _HeredocEnd) -> tuple[str, int]:
    """A here-document that begins at a place, and where it is over."""
    lines: list[str] = []
    while at < len(text):
        behind = text.find("\n", at)
        behind = len(text) if behind < 0 else behind
        line = text[at:behind]
        at = behind + 1
        if (line.lstrip("\t") if end.tabs else line) == end.word:
            break
        lines.append(f"{line}\n")
    return "".join(lines), at
