"""Colours only where somebody looks at a terminal that wants them."""

import io

import pytest

from houston_console.commands.output_page import OutputPage, OutputSpan, span


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


CASES = {
    "terminal": (Terminal, {"TERM": "xterm-256color"}, True),
    "pipe": (io.StringIO, {"TERM": "xterm-256color"}, False),
    "NO_COLOR": (Terminal, {"TERM": "xterm-256color", "NO_COLOR": "1"}, False),
    "dumb": (Terminal, {"TERM": "dumb"}, False),
}


@pytest.mark.parametrize("case", CASES)
def test_colours(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, environment, coloured = CASES[case]
    stream = kind()
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout", stream)
    OutputPage().line(span("hello\x1b[5m", "person"), " [bold]and[/bold] more")
    text = stream.getvalue()
    assert ("\x1b[1;33m" in text) is coloured
    assert "\x1b[5m" not in text
    assert "[bold]and[/bold] more" in text, "text is never markup"


def test_a_table_is_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(span("a"), span(5)), (span("longer"), span(1000))]
    OutputPage().table(("name", "steps#"), rows)
    assert capsys.readouterr().out.splitlines() == [
        "name    steps",
        "a           5",
        "longer   1000",
    ]


def test_a_cut_block_counts_what_it_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    OutputPage().block("\n".join("abcdef"), "  ", limit=3)
    assert capsys.readouterr().out.splitlines() == [
        "  a",
        "  b",
        "  c",
        "  … 3 more lines (--full)",
    ]
    OutputPage().block("a\nb", "", limit=1)
    assert capsys.readouterr().out == "a\nb\n", "one more line is shown, not counted"
    OutputPage().block("a\u2028b\x0cc\nd\n", "")
    assert capsys.readouterr().out == "a<U+2028>b\u240cc\nd\n", "a line is what a file calls one"
    OutputPage().block("", "")
    assert capsys.readouterr().out == ""
    OutputPage().block("x" * 1000, "", limit=9)
    assert capsys.readouterr().out == "x" * 400 + "… 600 more characters (--full)\n"
    assert span("a\nb").text == "a⏎b"
    assert OutputSpan("x").tone == ""
