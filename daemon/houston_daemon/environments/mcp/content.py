"""What a tool of a server gave back, as text; what is no text is declared and not shown."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mcp.types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

_MOST = 2_000_000
"""Characters that are kept before the observation is cut."""


@dataclass(frozen=True, slots=True)
class Given:
    """A result in words."""

    text: str
    not_shown: tuple[str, ...]
    """Kinds of content that are not shown."""


def given(result: CallToolResult) -> Given:
    """The result's content, or where it has none its structured value as JSON."""
    parts: list[str] = []
    not_shown: list[str] = []
    for one in result.content:
        text, kind = _block(one)
        parts.append(text)
        not_shown += [kind] if kind else []
    if not parts and result.structured_content is not None:
        parts.append(json.dumps(result.structured_content, ensure_ascii=False, indent=1))
    return Given(_joined(parts), tuple(dict.fromkeys(not_shown)))


def _block(one: Any) -> tuple[str, str]:
    """Its text, and the kind of what is not shown."""
    match one:
        case TextContent():
            return one.text, ""
        case ImageContent():
            return _declared("image", one.mime_type, one.data), "image"
        case AudioContent():
            return _declared("audio", one.mime_type, one.data), "audio"
        case ResourceLink():
            return f"[link to the resource {one.uri}]", ""
        case EmbeddedResource():
            return _resource(one)
    return f"[{type(one).__name__}: not shown]", "other"


def _resource(one: EmbeddedResource) -> tuple[str, str]:
    inner = one.resource
    kind = inner.mime_type or "unknown type"
    if isinstance(inner, TextResourceContents):
        size = f"{len(inner.text)} characters"
    else:
        size = f"about {len(inner.blob) * 3 // 4} bytes"
    return f"[embedded resource {inner.uri}, {kind}, {size}: not shown]", "resource"


def _declared(what: str, kind: str, data: str) -> str:
    return f"[{what}, {kind}, about {len(data) * 3 // 4} bytes: not shown]"


def _joined(parts: Sequence[str]) -> str:
    text = "\n".join(parts)
    if len(text) <= _MOST:
        return text
    return f"{text[:_MOST]}\n[{len(text) - _MOST} characters beyond this were dropped]"
