"""Steps as a judge reads them: framed one by one, with nothing in them that could speak to it.

Everything that an agent, a program or a file wrote is evidence, never instruction. The frame of a
window carries a key that is made from the window's own text and stands nowhere in it, so that
nobody who writes into a step can know it. What looks like a frame, a guidance tag or a model's own
markup is broken all the same. Secrets are taken out here, before anything is counted or sent.
"""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from houston_shared import observation, real_user, shortening
from houston_shared.records import Delivered, StepRecord
from houston_shared.safe_text import safe
from houston_shared.secret_values import redact

KEY = 8
"""Characters of a window's key."""
THOUGHT, CALLS = 0.25, 0.375
"""Shares of a step that is too long, for its thought and its calls; the observation has the rest
and whatever those leave."""
NOTHING = "(none)"
_FRAME = re.compile(
    r"[\[\u3010\uff3b]([^\[\]\n]{0,60}\bstep\W{0,3}\d{1,9}\W{1,3}(?:begins|ends)[^\[\]\n]{0,60})"
    r"[\]\u3011\uff3d]",
    re.IGNORECASE,
)
_MARKUP = re.compile(
    r"<(?=[|\uff5c]|/?s>|(?:start|end)_of_turn>|/?think>)|\[(?=/?(?:INST|gMASK)\])", re.IGNORECASE
)
"""How families of models write turns: a chat endpoint may take them for its own."""
_HEADING = re.compile(
    r"^([ \t]*)(#{1,6}[ \t]*(?:thought|calls|observation|a person said)\b)",
    re.IGNORECASE | re.MULTILINE,
)
"""The headings of a step: a thought that writes one would claim an observation that never was."""


class Counting(Protocol):
    """What counts and cuts text in tokens (`rollout.tokens`)."""

    def count(self, text: str) -> int:
        """Tokens of a text."""
        ...

    def cut(self, text: str, limit: int, what: str) -> str:
        """The text with its middle left out where it has more than `limit` tokens; says so."""
        ...


class Shown(NamedTuple):
    """A step as text, without its frame."""

    step: int
    text: str
    whole: bool
    """Whether nothing of it was left out."""
    tokens: int
    """Of the text, as counted: a long rollout is counted once."""


def harmless(text: str) -> str:
    """Text of an agent, a program or a file as a judge may read it."""
    return _unframed(real_user.disarm(safe(redact(text))).text)


def heard(said: Sequence[Delivered], tokens: Counting, room: int) -> str:
    """What people said, each in its live tag, the older ones cut where they exceed `room`."""
    clean = [said_safely(one) for one in said]
    return real_user.render(clean, shortening.fit(clean, room, tokens.count))


def said_safely(one: Delivered) -> Delivered:
    """Guidance with nothing in it that could end a frame; `real_user` writes and guards its tag."""
    return Delivered(id=one.id, author=one.author, text=_unframed(safe(redact(one.text))))


def _unframed(text: str) -> str:
    inside = _HEADING.sub(r"\1(\2)", _FRAME.sub(r"(\1)", text))
    return _MARKUP.sub(lambda found: f"{found.group()} ", inside)


def shown(step: StepRecord, tokens: Counting, limit: int) -> Shown:
    """A closed step as text of at most about `limit` tokens."""
    thought = harmless(step.sample.thought) or NOTHING
    calls = "\n".join(_call(number, one) for number, one in _numbered(step))
    tail = step.observation.tail if step.observation else ""
    seen = harmless(observation.text(step.results, tail, ())) or NOTHING
    said = heard(step.guidance, tokens, limit // 3)
    text = _joined(thought, calls, seen, said)
    size = tokens.count(text)
    if size <= limit:
        return Shown(step.step, text, True, size)
    room = max(3, limit - tokens.count(_joined("", "", "", said)))
    thought = tokens.cut(thought, max(1, int(room * THOUGHT)), "the thought")
    calls = tokens.cut(calls, max(1, int(room * CALLS)), "the action")
    left = room - tokens.count(thought) - tokens.count(calls)
    seen = tokens.cut(seen, max(1, left), "the observation")
    text = _joined(thought, calls, seen, said)
    return Shown(step.step, text, False, tokens.count(text))


def framed(steps: Sequence[Shown], context: Callable[[int], bool], key: str) -> str:
    """Steps in their frames. context: whether a step only stands there to be understood."""
    return "\n".join(_frame(one, context(one.step), key) for one in steps)


def key_for(texts: Sequence[str]) -> str:
    """A key that stands in none of the texts, the same for the same texts."""
    whole = "\n".join(texts)
    salt = 0
    while True:
        made = hashlib.sha256(f"{salt}\n{whole}".encode(errors="replace")).hexdigest()[:KEY]
        if made not in whole:
            return made
        salt += 1


def _frame(one: Shown, context: bool, key: str) -> str:
    begins = f"[{key} step {one.step} begins{', context only' if context else ''}]"
    return f"{begins}\n{one.text}\n[{key} step {one.step} ends]"


def _joined(thought: str, calls: str, seen: str, said: str) -> str:
    heard = f"\n## a person said{said}" if said else ""
    return f"## thought\n{thought}\n## calls\n{calls}\n## observation\n{seen}{heard}"


def _numbered(step: StepRecord) -> list[tuple[int, Any]]:
    if step.sample.malformed:
        return [(0, step.sample.malformed)]
    return list(enumerate(step.sample.calls, 1)) or [(0, "no call")]


def _call(number: int, one: Any) -> str:
    if not number:
        return f"(none: {harmless(one)})"
    written = [f"{name}: {_argument(value)}" for name, value in one.arguments.items()]
    wrong = f" (cannot be run: {one.error})" if one.error else ""
    return harmless("\n".join([f"{number}. {one.name}{wrong}", *written]))


def _argument(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
