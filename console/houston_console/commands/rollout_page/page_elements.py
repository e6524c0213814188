"""Elements of the page, and the page around them.

All text enters a page through `add_text`: without secrets, without invisible characters, and
escaped by the serializer. Code that cuts or splits a text must redact it before, because a part of
a secret is not recognised. The caller decides what an element means.
"""

import base64
import hashlib
from collections.abc import Iterable
from importlib.resources import files
from xml.etree.ElementTree import Element, tostring

from houston_shared.safe_text import safe
from houston_shared.secret_redaction import redact

Content = Element | str | None
"""What an element may hold; None holds a place for what is not there."""
MAX_TEXT_CHARACTERS = 40_000
"""Characters of one text that the page shows; of a longer one its beginning and its end."""
_END_SHARE = 4
"""The end that is kept is so small a part of that."""


def element(tag: str, *content: Content, kind: str = "", **attributes: str) -> Element:
    """An element. kind: its classes. Attributes are named as in HTML, `_` for `-`."""
    node = Element(tag)
    if kind:
        node.set("class", kind)
    for name, value in attributes.items():
        node.set(name.strip("_").replace("_", "-"), safe(redact(value)))
    return extend(node, content)


def extend(node: Element, content: Iterable[Content]) -> Element:
    """The element with more at its end."""
    for part in content:
        if isinstance(part, str):
            add_text(node, part)
        elif part is not None:
            node.append(part)
    return node


def add_text(node: Element, text: str) -> None:
    """Put text behind what the element holds already."""
    safe_text = safe(redact(text))
    if len(node):
        node[-1].tail = (node[-1].tail or "") + safe_text
    else:
        node.text = (node.text or "") + safe_text


def cut_text(text: str) -> tuple[str, str, str]:
    """What is shown of a text: its beginning, what is said of the part left out, its end."""
    if len(text) <= MAX_TEXT_CHARACTERS:
        return text, "", ""
    end = MAX_TEXT_CHARACTERS // _END_SHARE
    begin = MAX_TEXT_CHARACTERS - end
    left_out = len(text) - MAX_TEXT_CHARACTERS
    return text[:begin], f"{left_out:,} of {len(text):,} characters left out", text[-end:]


def markup(node: Element) -> str:
    """The element as HTML."""
    return tostring(node, encoding="unicode", method="html")


def page_start(title: str) -> str:
    """All that comes before what the body holds."""
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; style-src {_source(style)}; script-src {_source(script)};"
        " base-uri 'none'; form-action 'none'"
    )
    head = [
        '<meta charset="utf-8">',
        markup(element("meta", http_equiv="Content-Security-Policy", content=policy)),
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        '<meta name="color-scheme" content="light dark">',
        markup(element("title", title)),
        f"<style>{style}</style>",
    ]
    return '<!doctype html>\n<html lang="en">\n<head>\n' + "\n".join(head) + "\n</head>\n<body>\n"


def page_end() -> str:
    """All that comes behind it."""
    return f"<script>{_asset('page.js')}</script>\n</body>\n</html>\n"


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    """How a policy names what is inline."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
