"""Secrets out of rows: texts are redacted; ids that hold one are refused, for they cannot be.

A row of ids is what a policy saw and sampled; with other ids in the place of a secret it would be
another row, and its log-probabilities would be of nothing. Rollouts are redacted as they run, so
this meets what was no secret then: a key that was configured since, or one that a person said.
"""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import structs

from houston_daemon.training.rows.row import ChatMessage, ChatRow, Row
from houston_shared.redaction import placeholders
from houston_shared.secret_values import redact, redact_all


def of_ids(row: Row) -> str:
    """Why a row of ids cannot leave the home; empty when it can."""
    if not row.tokenizer:
        return "it names no tokenizer, so that nobody can look for secrets in its ids"
    try:
        tokenizer = _tokenizer(row.tokenizer)
    except Exception as problem:  # noqa: BLE001  # the library raises nothing narrower
        return f"its tokenizer cannot be read to look for secrets in its ids ({problem})"
    text = str(tokenizer.decode(row.token_ids.tolist(), skip_special_tokens=False))
    clean = redact(text)
    if clean == text:
        return ""
    found = sorted(set(placeholders(clean)) - set(placeholders(text))) or ["secret"]
    return f"its text holds [secret:{found[0]}], which ids cannot leave out"


def without(row: Row) -> Row:
    """A row of ids with what people and judges said of it redacted."""
    spans = tuple(replace(one, why=redact(one.why)) if one.why else one for one in row.spans)
    names = {name: redact(getattr(row, name)) for name in ("task", "group", "domain")}
    return replace(row, spans=spans, **names)  # type: ignore[arg-type]


def without_text(row: ChatRow) -> ChatRow:
    """A row of messages without secrets, in content, calls, tools and reasons."""
    names = {name: redact(getattr(row, name)) for name in ("task", "group", "domain")}
    messages = tuple(_message(one) for one in row.messages)
    return replace(row, messages=messages, tools=_tools(row.tools), **names)  # type: ignore[arg-type]


def _message(one: ChatMessage) -> ChatMessage:
    said = one.message
    calls = tuple(
        structs.replace(call, arguments=redact_all(call.arguments), name=redact(call.name))
        for call in said.calls
    )
    content = redact(said.content)
    if content is said.content and calls == said.calls and not one.why:
        return one
    message = structs.replace(said, content=content, calls=calls)
    return replace(one, message=message, why=redact(one.why))


def _tools(tools: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    found: tuple[dict[str, Any], ...] = redact_all(tools)
    return found


@lru_cache(maxsize=4)
def _tokenizer(file: str) -> Any:
    from tokenizers import Tokenizer  # only here: 17 ms, and 0.1 s for a file

    path = Path(file)
    return Tokenizer.from_file(str(path / "tokenizer.json" if path.is_dir() else path))
