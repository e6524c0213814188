"""What a person's words forbid, found without a model: `do not use X`, `stop ...ing`.

Only plain prohibitions of something that can be named are found. Conditions (`until`, `unless`) and
anything vague are left to the judge. It knows no action.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_VERBS = {
    "use": "use", "using": "use", "import": "use", "importing": "use", "install": "use",
    "installing": "use", "call": "use", "calling": "use", "load": "use", "loading": "use",
    "run": "run", "running": "run", "execute": "run", "executing": "run", "launch": "run",
    "launching": "run", "start": "run", "starting": "run",
    "edit": "write", "editing": "write", "change": "write", "changing": "write",
    "modify": "write", "modifying": "write", "touch": "write", "touching": "write",
    "overwrite": "write", "overwriting": "write", "delete": "write", "deleting": "write",
    "remove": "write", "removing": "write", "rewrite": "write", "rewriting": "write",
    "write": "write", "writing": "write", "create": "write", "creating": "write",
    "read": "read", "reading": "read", "open": "read", "opening": "read",
}  # fmt: skip
"""What a verb says of the action that it is about."""
_ALONE = {
    "sleep": "sleep", "sleeping": "sleep", "evaluate": "eval", "evaluating": "eval",
    "submit": "eval", "submitting": "eval", "finish": "finish", "finishing": "finish",
    "browse": "web_browse", "browsing": "web_browse", "search": "web_search",
    "searching": "web_search",
}  # fmt: skip
"""Verbs that need no object: the call that they are about."""
_FORBIDS = re.compile(
    r"\b(?:do\s+not|don[’']t|dont|never|stop|avoid|quit|no\s+longer|must\s+not|mustn[’']t|no\s+more"
    r"|should\s+not|shouldn[’']t)\s+(?:ever\s+|again\s+|please\s+|just\s+)?"
    r"(?P<verb>[a-z]+)\b(?P<rest>[^.;!?\n]*(?:\.\w[^.;!?\n]*)*)",
    re.I,
)
_ALLOWS = re.compile(
    r"\b(?:you\s+(?:can|may|should)|please|now|instead)\s+(?:now\s+|again\s+)?(?P<verb>[a-z]+)\b"
    r"(?P<rest>[^.;!?\n]*(?:\.\w[^.;!?\n]*)*)",
    re.I,
)
_CONDITION = re.compile(
    r"\b(?:until|unless|if|when|while|before|after|except|without|only|more\s+than)\b", re.I
)
_ENDS = re.compile(
    r"\s*(?:,|\b(?:and|or|but|instead|because|since|any\s*more|again|now|then|at\s+all|please)\b|[:)(]|--|—).*",
    re.I | re.S,
)
_PURPOSE = re.compile(r"\s+(?:for|to)\s+(?:the\s+)?(?P<what>[a-z]+)\b.*", re.I | re.S)
_QUOTED = re.compile(r"(?<!\w)[`'\"“‘]([^`'\"“”‘’]{2,80})[`'\"”’](?!\w)")
_FILL = (
    "a an the this that your my our of library package module model file script command tool flag"
    " option action function directly"
)
_FILLERS = frozenset(_FILL.split())
_VAGUE = "it them those these any all more so such anything everything there here"
_NOTHING = frozenset(_VAGUE.split())
_SHORTEST = 2


class Forbidden(NamedTuple):
    """Something that guidance forbids."""

    manner: str
    """`use`, `run`, `write`, `read`, or `call` where `what` is the name of a call."""
    what: str
    purpose: str = ""
    """What it is forbidden for; empty for everything."""

    @property
    def words(self) -> str:
        """As a reason says it."""
        return f"{self.what}{f' for {self.purpose}' if self.purpose else ''}"


def forbidden(text: str) -> list[Forbidden]:
    """What a message forbids, in its order; nothing where its words are not plain."""
    return list(dict.fromkeys(_all(_FORBIDS, text)))


def allowed(text: str) -> list[Forbidden]:
    """What a message asks for or allows: it takes an earlier prohibition of the same thing back."""
    return list(dict.fromkeys(_all(_ALLOWS, text)))


def _all(pattern: re.Pattern[str], text: str) -> Iterator[Forbidden]:
    for found in pattern.finditer(text):
        verb, rest = found["verb"].lower(), found["rest"]
        if _CONDITION.search(_QUOTED.sub("", rest)):
            continue
        if verb in _VERBS:
            yield from _objects(_VERBS[verb], rest)
        elif verb in _ALONE and not _ENDS.sub("", rest).strip():
            yield Forbidden("call", _ALONE[verb])


def _objects(manner: str, rest: str) -> Iterator[Forbidden]:
    purpose = ""
    if found := _PURPOSE.search(_QUOTED.sub(" x ", rest)):
        purpose = found["what"].lower()
        rest = _PURPOSE.sub("", rest)
    if quoted := _QUOTED.findall(rest):
        yield from (Forbidden(manner, one.strip(), purpose) for one in quoted)
        return
    words = [word for word in _ENDS.sub("", rest).split() if word.lower() not in _FILLERS]
    if len(words) == 1 and words[0].lower() not in _NOTHING and len(words[0]) > _SHORTEST:
        yield Forbidden(manner, words[0].strip("`'\"*"), purpose)
