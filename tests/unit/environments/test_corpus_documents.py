"""A file of a corpus is read whatever its markup, and never for longer than its length asks for."""

import random

import pytest

from houston_daemon.environments.retrieval.corpus_documents import read_html

PAGES = [
    ("<TITLE>A &amp; B</Title><p>x", "A & B", "x"),
    ("<p>1 < 2 &lt; 3<br>4", "", "1 < 2 < 3\n4"),
    ('<h1 title="a > b">Big</h1> one', "", "Big\none"),
    ("<a title='x\"y'>in</a>side", "", "inside"),
    ("a<!-- <p>no --> b<SCRIPT>if (1<2) x='<p>'</SCRIPT >c<style>d", "", "a bc"),
    ("<![if IE]>x<![endif]><?xml y?>z<!DOCTYPE html>", "", "xz"),
    ("<ul><li>one<li>two</ul>three</made-up>", "", "one\ntwo\nthree"),
    ("<p>no end <a href='", "", "no end"),
    ("&#xd800;&#99999999;&nosuch;", "", "\ufffd\ufffd&nosuch;"),
    ('<td width="5"">a <b id="x">b</b> <i id="y">c</i>', "", "a b c"),
    ("<a title=it's>x</a><p>it's <b class='y'>all</b>", "", "x\nit's all"),
    (
        '<p>a <svg class="i" viewBox="0 0 1 1"/> b<svg ><path/></svg>c<script src="x"/>d',
        "",
        "a bcd",
    ),
    ("a<!-->b<!--->c<!-- d -->e", "", "abce"),
    ("", "", ""),
]


@pytest.mark.parametrize(("markup", "title", "text"), PAGES)
def test_title_and_text(markup: str, title: str, text: str) -> None:
    assert read_html(markup) == (title, text)


def test_long_and_senseless_markup_ends() -> None:
    for piece in (
        "<!--",
        "<a",
        "<a b='",
        "</",
        "<",
        "&#x1",
        "<![",
        "'<a \"",
        "<a =  ",
        "<script>",
        "<title>",
    ):
        read_html(piece * (1_000_000 // len(piece)))
    random_ = random.Random(1)
    pieces = [*"<>![]-/a\"' &#x?=\n\0", "if", "CDATA", "doctype", "script", "title", "--"]
    for _ in range(5_000):
        markup = "".join(random_.choices(pieces, k=random_.randint(1, 25)))
        title, text = read_html(markup)
        assert len(title) + len(text) <= len(markup) * 2
