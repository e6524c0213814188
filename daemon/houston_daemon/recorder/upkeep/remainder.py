"""What is left of an erased body: everything that is no text, so that replay and counts still hold.

Two ways. `blank` takes every text of an agent, its world or a person out, as an archive does.
`redact` takes one string out wherever it stands. Both give a body of the same kind, in which a mark
stands for what is gone and zeros for token ids.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from houston_shared import rule_reasons, verdict_order
from houston_shared.errors import HoustonError
from houston_shared.records import Call, ForkBody, Head, Intent, Record, Result
from houston_shared.store import bodies, bodies_training
from houston_shared.store.journal import ERASED
from houston_shared.wire import encode

SPARED = frozenset({"erased", "repaired"})
"""Kinds that vouch for others and are never erased."""
_NUMBERS = frozenset({"overall_score", "state", "seconds", "counted", "total_results"})
"""Fields of a result that derived rows are made from."""
_NAMED = ("name", "kind", "base", "hash", "folder", "parent", "run", "engine", "policy", "state")
"""Fields by which runs, policies and activations are told apart."""
_IDS = ("token_ids", "new_prompt_ids")
_TEXTS = frozenset(
    {
        "arguments",
        "fields",
        "parameters",
        "tools",
        "shortened",
        "engine_settings",
        "tool_settings",
        "recipe",
        "metrics",
    }
)
"""Members whose keys are anybody's words."""


def blank(kind: str, data: bytes) -> bytes | None:
    """The body without its texts; None for kinds that hold none. Raises msgspec.MsgspecError."""
    rule = _RULES.get(kind)
    if rule is None:
        return None
    return encode(rule(msgspec.msgpack.decode(data, type=bodies.TYPES[kind])))


def without_ids(kind: str, data: bytes) -> bytes:
    """The body without token ids and their log-probabilities."""
    return encode(
        msgspec.msgpack.decode(
            encode(_without(msgspec.msgpack.decode(data), "")), type=bodies.TYPES[kind]
        )
    )


def redact(kind: str, data: bytes, text: str) -> bytes:
    """The body without `text`, and without any token ids, which may spell it.

    Raises HoustonError where the text cannot be told from words of Houston's own.
    """
    left = encode(_without(msgspec.msgpack.decode(data), text))
    try:
        now = msgspec.msgpack.decode(left, type=bodies.TYPES[kind])
        gone = text.encode() not in left and _same(kind, data, now)
    except msgspec.MsgspecError:
        gone = False
    if not gone:
        raise HoustonError(
            f"{text[:40]!r} is also a word of Houston's own: it cannot be taken out alone.",
            "Nothing was erased.",
            "Erase the whole step: houston rollout erase R --step N",
        )
    return left


def _same(kind: str, data: bytes, now: Record) -> bool:
    """Whether a training run, a policy or an activation is still called what it was."""
    if kind not in bodies_training.TYPES:
        return True
    before = msgspec.msgpack.decode(data, type=bodies.TYPES[kind])
    return all(getattr(before, name, None) == getattr(now, name, None) for name in _NAMED)


def holds(data: bytes, text: str) -> bool:
    """Whether a body holds a text, as it is or as observations escape it."""
    return any(one.encode() in data for one in spellings(text))


def spellings(text: str) -> tuple[str, ...]:
    """The text, and how it looks where angle brackets and ampersands were escaped."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return tuple(dict.fromkeys((text, text.replace("<", "&lt;").replace(">", "&gt;"), escaped)))


def _without(value: Any, text: str, words: bool = False) -> Any:
    """words: whether keys are somebody's, not names of members."""
    if isinstance(value, str):
        for one in spellings(text) if text else ():
            value = value.replace(one, "[erased]")
        return value
    if isinstance(value, list | tuple):
        return [_without(one, text, words) for one in value]
    if not isinstance(value, dict):
        return value
    new: dict[Any, Any] = {}
    for key, one in value.items():
        name = _without(key, text) if words else key
        if not words and key in _IDS and one is not None:
            new[name] = [0] * len(one)
        elif not words and key == "logprobs":
            new[name] = None
        else:
            new[name] = _without(one, text, words or key in _TEXTS)
    return _unique(new)


def _unique(body: dict[Any, Any]) -> dict[Any, Any]:
    """Files whose paths have become the same are one row: the first stays."""
    files = body.get("files")
    if isinstance(files, list) and all(isinstance(one, dict) for one in files):
        body["files"] = list({one.get("path"): one for one in reversed(files)}.values())[::-1]
    return body


def _zeros(ids: tuple[int, ...] | None) -> tuple[int, ...] | None:
    return None if ids is None else (0,) * len(ids)


def _call(call: Call) -> Call:
    return Call(id=call.id, name=call.name, arguments={}, error=ERASED if call.error else "")


def _head(head: Head) -> Record:
    return msgspec.structs.replace(
        head, system=ERASED, task=ERASED, tools=(), rendered="", token_ids=_zeros(head.token_ids)
    )


def _sample(one: bodies.StoredSample) -> Record:
    grammar = one.parameters.get("grammar")
    return msgspec.structs.replace(
        one,
        new_prompt_ids=_zeros(one.new_prompt_ids),
        token_ids=_zeros(one.token_ids),
        logprobs=None,
        parameters={"grammar": ERASED} if grammar else {},
        thought=ERASED,
        calls=tuple(map(_call, one.calls)),
        malformed=ERASED if one.malformed else "",
    )


def _intent(one: Intent) -> Record:
    return msgspec.structs.replace(one, call=_call(one.call))


def _result(one: Result) -> Record:
    fields = {name: value for name, value in one.fields.items() if name in _NUMBERS}
    return msgspec.structs.replace(one, call=_call(one.call), text=ERASED, fields=fields)


def _observation(one: bodies.StoredObservation) -> Record:
    files = tuple(msgspec.structs.replace(file, diff="", note=ERASED) for file in one.files)
    reasons = dict.fromkeys(one.reasons, ERASED)
    return msgspec.structs.replace(one, tail=ERASED, files=files, reasons=reasons)


def _fork(one: ForkBody) -> Record:
    return msgspec.structs.replace(one, summary=ERASED)


def _said(one: Any) -> Any:
    return msgspec.structs.replace(one, text=ERASED)


def _noted(one: bodies.Bookmarked | bodies.Claimed) -> Record:
    return msgspec.structs.replace(one, note=ERASED if one.note else "")


def _judged(one: bodies.VerdictGiven) -> Record:
    # That a rule masks an error decides which verdict counts, and its name is nobody's words.
    named = rule_reasons.split(one.reason) if one.source == "rule" else []
    errors = [rule._replace(reason=ERASED) for rule in named if rule.rule == verdict_order.ERROR]
    reason = rule_reasons.joined(errors[:1]) or (ERASED if one.reason else "")
    return msgspec.structs.replace(one, reason=reason)


_RULES: dict[str, Callable[[Any], Any]] = {
    "head": _head,
    "sample": _sample,
    "intent": _intent,
    "result": _result,
    "observation": _observation,
    "fork": _fork,
    "guidance": _said,
    "edit": _said,
    "bookmark": _noted,
    "claim": _noted,
    "verdict": _judged,
}
