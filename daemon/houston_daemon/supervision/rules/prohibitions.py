"""What a person's words forbid, found without a model: `do not use X`, `stop ...ing`.

Only plain prohibitions of something that can be named are found. Conditions (`until`, `unless`) and
anything vague are left to the judge. It knows no action.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_VERBS = {
    "use": "use", "using": "use", "import": "use", "importing": "use", "install": "use",
    "installing": "use", "pass": "use", "passing": "use", "enable": "use", "enabling": "use",
    "try": "use", "trying": "use", "call": "use", "calling": "use", "load": "use", "loading": "use",
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
_WHATEVER = {"kill": "kill_session_processes", "killing": "kill_session_processes"}
"""Verbs that are about one call, whatever their object."""
_REST = r"(?P<rest>[^.;!?\n]*(?:\.\w[^.;!?\n]*)*)"
"""What follows in the same sentence; a dot within a name does not end it."""
_FORBIDS = re.compile(
    r"(?:(?P<asks>\b(?:do\s+not|don[’']t|dont|never|stop|avoid|quit|no\s+longer|no\s+more))"
    r"|\b(?:must\s+not|mustn[’']t|should\s+not|shouldn[’']t))"
    rf"\s+(?:ever\s+|again\s+|please\s+|just\s+|be\s+)?(?P<verb>[a-z]+)\b{_REST}",
    re.I,
)
_THING = r"(?P<rest>[`'\"]?[\w./-]{2,200}[`'\"]?)"
_ENDING = (
    r"(?=\s*(?:[,;!?:)\n]|\.(?!\w)|\Z"
    r"|(?:please|pls|thanks|here|and|or|for|in|at|on|but|this)\b))"
)
_PLAIN: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (manner, re.compile(words, re.I))
    for manner, words in (
        ("use", rf"\bavoid\s+(?:the\s+)?{_THING}{_ENDING}"),
        ("use", rf"(?:\A|[.;:!?,\n]|\b(?:and|but|so|please|said))\s*\bno\s+{_THING}{_ENDING}"),
        ("use", rf"\b(?:do\s+not|don[’']t|dont)\s+(?:want|need)\s+(?:any\s+)?{_THING}{_ENDING}"),
        (
            "use",
            r"\b(?:do|run|train|try|solve|make|implement|write|build)\b[^.;!?,\n]{0,40}"
            rf"\bwithout\s+(?:using\s+|any\s+)?{_THING}{_ENDING}",
        ),
        ("write", rf"\bleave\s+{_THING}\s+(?:alone|as\s+(?:it\s+)?is|untouched|unchanged)\b"),
        ("write", rf"\b(?:hands\s+off|keep\s+away\s+from|stay\s+away\s+from)\s+{_THING}"),
        ("touch", rf"(?<![\w./-]){_THING}\s+(?:is|are)\s+(?:off[- ]limits|taboo|forbidden)\b"),
    )
)
"""What is forbidden without a verb that says what is done with it: plain words, one thing."""
_NONE_OF = (
    "problem problems worries worry rush hurry need idea doubt matter way thanks error errors luck"
    " progress change changes reason result results news issue issues question questions comment"
    " comments difference output answer answers time pressure clue pain wonder one longer more less"
    " it this that them these those any all surprise harm point sense"
)
_ORDINARY = frozenset(_NONE_OF.split())
"""Words of which `no` says that there is none."""
_READ_FIRST = re.compile(
    r"(?P<before>[\w’']+\s+)?\b(?:read|look\s+at|look\s+into|open|check|inspect|study)\s+(?:the\s+)?"
    r"(?P<what>[`'\"]?[\w./-]*\w[`'\"]?)\s+(?:file\s+|script\s+)?first\b(?!\s+\w+\s+this)",
    re.I,
)
_INSTEAD = re.compile(
    r"\b(?P<verb>use|run|call)\b(?:[^.;!?\n]|\.\w){1,60}?(?:\binstead\s+of|\brather\s+than|,\s*not|\band\s+not)"
    rf"\s+(?:using\s+|running\s+)?{_REST}",
    re.I,
)
_PASSIVE = re.compile(
    r"(?<![\w./`'\"-])(?P<rest>[`'\"]?[\w./-]{1,200}[`'\"]?)\s+"
    r"(?:must|should|may)\s+(?:not|never)\s+be\s+"
    r"(?P<verb>us|run|chang|edit|modifi|touch|delet|remov|overwrit|overwritt|read)(?:ed|en|d)?\b"
    r"(?P<more>[^.;!?\n]*)",
    re.I,
)
_PASSIVES = {"us": "use", "run": "run", "read": "read"}
"""Stems of participles; the others change something."""
_ALLOWS = re.compile(
    r"\b(?:you\s+(?:can|may|should)|please|now|instead)\s+(?:now\s+|again\s+)?(?P<verb>[a-z]+)\b"
    rf"{_REST}",
    re.I,
)
_ASKING = frozenset(
    [
        "should",
        "must",
        "better",
        "to",
        "please",
        "and",
        "but",
        "so",
        "also",
        "then",
        "or",
        "just",
        "again",
        "now",
        "to",
        "instead",
        "again",
        "rather",
        "better",
        "therefore",
    ]
)
"""Words before `do not` with which it still asks: after `you` or a name it only says how it is."""
_CONDITION = re.compile(
    r"\b(?:until|unless|if|when|while|before|after|except|without|only|more\s+than)\b", re.I
)
_MOMENT = re.compile(
    r"\b(?:first|yet|(?:for|right)\s+now|at\s+the\s+moment|this\s+time|today)\b", re.I
)
"""Words with which something is forbidden for a time."""
_ENDS = re.compile(
    r"\s*(?:,|\b(?:and|or|but|instead|because|since|any\s*more|again|now|then|at\s+all|please|pls|thanks|here|this\s+time)\b|[:)(]|--|—).*",
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
_TIMELY = frozenset({"sleep", "eval", "finish"})
"""Calls that are right at one time and wrong at another, whatever they are forbidden with."""


class Forbidden(NamedTuple):
    """Something that guidance forbids."""

    manner: str
    """`use`, `run`, `write`, `read`, `touch` for all of them, or `call` where `what` is the name of
    a call."""
    what: str
    purpose: str = ""
    """What it is forbidden for; empty for everything."""
    now: bool = False
    """Whether the words say that it is for a time."""

    @property
    def passing(self) -> bool:
        """Whether it is forbidden for the moment, and not for good."""
        return self.now or self.manner == "call" or self.what.lower() in _TIMELY

    @property
    def words(self) -> str:
        """As a reason says it."""
        return f"{self.what}{f' for {self.purpose}' if self.purpose else ''}"


def forbidden(text: str) -> list[Forbidden]:
    """What a message forbids; nothing where its words are not plain."""
    asked = [*_asked(_FORBIDS, text), *_asked(_INSTEAD, text), *_passive(text), *_plain(text)]
    return list(dict.fromkeys(asked))


def first_read(text: str) -> list[str]:
    """Files that a message wants to be read before anything else is done."""
    found = []
    for one in _READ_FIRST.finditer(text):
        before = (one["before"] or "").strip().lower()
        what = one["what"].strip("`'\"")
        if (not before or before in _ASKING) and ("." in what or "/" in what or what.isupper()):
            found.append(what)
    return found


def allowed(text: str) -> list[Forbidden]:
    """What a message asks for or allows: it takes an earlier prohibition of the same thing back."""
    return list(dict.fromkeys(_asked(_ALLOWS, text)))


def _asked(pattern: re.Pattern[str], text: str) -> Iterator[Forbidden]:
    for found in pattern.finditer(text):
        verb, rest = found["verb"].lower(), found["rest"]
        before = re.split(r"[.;!?\n](?!\w)", text[: found.start()])[-1]
        if _CONDITION.search(f"{before} {_QUOTED.sub('', rest)}"):
            continue
        word = re.search(r"([\w’']+)\s*\Z", before)
        if found.groupdict().get("asks") and word and word[1].lower() not in _ASKING:
            continue
        if verb in _VERBS:
            now = bool(_MOMENT.search(f"{before} {_QUOTED.sub('', rest)}"))
            yield from (one._replace(now=now) for one in _objects(_VERBS[verb], rest))
        elif verb in _WHATEVER:
            yield Forbidden("call", _WHATEVER[verb])
        elif verb in _ALONE and not _ENDS.sub("", rest).strip():
            yield Forbidden("call", _ALONE[verb])


def _plain(text: str) -> Iterator[Forbidden]:
    for manner, pattern in _PLAIN:
        for found in pattern.finditer(text):
            what = found["rest"].strip("`'\"").rstrip(".")
            before, after = text[: found.start()], text[found.end() :]
            sentence = re.split(r"[.;!?\n](?!\w)", before)[-1]
            rest = re.split(r"[.;!?\n](?!\w)", after)[0]
            ordinary = what.lower() in _ORDINARY or what.lower().endswith("ing")
            if ordinary or _VERBS.get(what.lower()) or len(what) <= _SHORTEST:
                continue
            if not _CONDITION.search(f"{sentence} {rest}"):
                yield Forbidden(manner, what, now=bool(_MOMENT.search(f"{sentence} {rest}")))


def _passive(text: str) -> Iterator[Forbidden]:
    for found in _PASSIVE.finditer(text):
        if not _CONDITION.search(found["more"]):
            manner = _PASSIVES.get(found["verb"].lower(), "write")
            purpose = _PURPOSE.match(found["more"])
            now = bool(_MOMENT.search(found["more"]))
            for one in _objects(manner, found["rest"]):
                yield one._replace(purpose=purpose["what"].lower() if purpose else "", now=now)


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
