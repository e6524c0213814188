"""What a person's guidance forbids, found without a model: `do not use X`, `stop …ing`, `read X
first`.

Only plain prohibitions of something that can be named are found. Conditions (`until`, `unless`),
the passive voice and anything vague are left to the judge. Each pattern finds steps of the judged
cases (`docs/rules.md`) that no other finds. It reads text and knows no action; whether a step does
it is `guidance_rule`'s.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_VERB_MANNERS = {
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
_VERB_CALLS = {
    "sleep": "sleep", "sleeping": "sleep", "evaluate": "eval", "evaluating": "eval",
    "submit": "eval", "submitting": "eval", "finish": "finish", "finishing": "finish",
    "browse": "web_browse", "browsing": "web_browse", "search": "web_search",
    "searching": "web_search",
}  # fmt: skip
"""Verbs that need no object: the call that they are about."""
_VERB_ANY_OBJECT = {"kill": "kill_session_processes", "killing": "kill_session_processes"}
"""Verbs that are about one call, whatever their object."""
_REST_OF_SENTENCE = r"(?P<rest>[^.;!?\n]*(?:\.\w[^.;!?\n]*)*)"
"""What follows in the same sentence; a dot within a name does not end it."""
_SENTENCE_END = re.compile(r"[.;!?\n](?!\w)")
_PROHIBITION = re.compile(
    r"(?:(?P<asks>\b(?:do\s+not|don[’']t|dont|never|stop|avoid|quit|no\s+longer|no\s+more))"
    r"|\b(?:must\s+not|mustn[’']t|should\s+not|shouldn[’']t))"
    rf"\s+(?:ever\s+|again\s+|please\s+|just\s+|be\s+)?(?P<verb>[a-z]+)\b{_REST_OF_SENTENCE}",
    re.I,
)
_ONE_THING = r"(?P<rest>[`'\"]?[\w./-]{2,200}[`'\"]?)"
_AFTER_THING = (
    r"(?=\s*(?:[,;!?:)\n]|\.(?!\w)|\Z"
    r"|(?:please|pls|thanks|here|and|or|for|in|at|on|but|this)\b))"
)
_PLAIN_PROHIBITIONS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (manner, re.compile(words, re.I))
    for manner, words in (
        ("use", rf"\bavoid\s+(?:the\s+)?{_ONE_THING}{_AFTER_THING}"),
        (
            "use",
            rf"(?:\A|[.;:!?,\n]|\b(?:and|but|so|please|said))[^\S\n]*\bno\s+{_ONE_THING}{_AFTER_THING}",
        ),
        (
            "use",
            rf"\b(?:do\s+not|don[’']t|dont)\s+(?:want|need)\s+(?:any\s+)?{_ONE_THING}{_AFTER_THING}",
        ),
        (
            "use",
            r"\b(?:do|run|train|try|solve|make|implement|write|build)\b[^.;!?,\n]{0,40}"
            rf"\bwithout\s+(?:using\s+|any\s+)?{_ONE_THING}{_AFTER_THING}",
        ),
        ("write", rf"\bleave\s+{_ONE_THING}\s+(?:alone|as\s+(?:it\s+)?is|untouched|unchanged)\b"),
        ("write", rf"\b(?:hands\s+off|keep\s+away\s+from|stay\s+away\s+from)\s+{_ONE_THING}"),
        ("touch", rf"(?<![\w./-]){_ONE_THING}\s+(?:is|are)\s+(?:off[- ]limits|taboo|forbidden)\b"),
    )
)
"""What is forbidden without a verb that says what is done with it: plain words, one thing."""
_ORDINARY_WORDS = (
    "problem problems worries worry rush hurry need idea doubt matter way thanks error errors luck"
    " progress change changes reason result results news issue issues question questions comment"
    " comments difference output answer answers time pressure clue pain wonder one longer more less"
    " it this that them these those any all surprise harm point sense"
)
_ORDINARY = frozenset(_ORDINARY_WORDS.split())
"""Words of which `no` says that there is none."""
_READ_FIRST = re.compile(
    r"(?:(?<![\w’'])(?P<before>[\w’']+)\s+)?\b(?:read|look\s+at|look\s+into|open|check|inspect|study)\s+(?:the\s+)?"
    r"(?P<what>[`'\"]?[\w./-]*\w[`'\"]?)\s+(?:file\s+|script\s+)?first\b(?!\s+\w+\s+this)",
    re.I,
)
_USE_INSTEAD = re.compile(
    r"\b(?P<verb>use|run|call)\b(?:[^.;!?\n]|\.\w){1,60}?(?:\binstead\s+of|\brather\s+than|,\s*not|\band\s+not)"
    rf"\s+(?:using\s+|running\s+)?{_REST_OF_SENTENCE}",
    re.I,
)
_PERMISSION = re.compile(
    r"\b(?:you\s+(?:can|may|should)|please|now|instead)\s+(?:now\s+|again\s+)?(?P<verb>[a-z]+)\b"
    rf"{_REST_OF_SENTENCE}",
    re.I,
)
_ASKING_WORDS = (
    "should must better to please and but so also then or just again now instead rather therefore"
)
_WORDS_BEFORE_NOT = frozenset(_ASKING_WORDS.split())
"""Words before `do not` with which it still asks: after `you` or a name it only says how it is."""
CONDITION = re.compile(
    r"\b(?:until|unless|if|when|while|before|after|except|without|only|more\s+than)\b", re.I
)
"""Words with which a sentence asks for something only sometimes."""
_FOR_NOW = re.compile(
    r"\b(?:first|yet|(?:for|right)\s+now|at\s+the\s+moment|this\s+time|today)\b", re.I
)
"""Words with which something is forbidden for a time."""
_OBJECT_END = re.compile(
    r"\s*(?:,|\b(?:and|or|but|instead|because|since|any\s*more|again|now|then|at\s+all|please|pls|thanks|here|this\s+time)\b|[:)(]|--|—).*",
    re.I | re.S,
)
_PURPOSE = re.compile(r"\s+(?:for|to)\s+(?:the\s+)?(?P<what>[a-z]+)\b.*", re.I | re.S)
QUOTED = re.compile(r"(?<!\w)[`'\"“‘]([^`'\"“”‘’]{2,80})[`'\"”’](?!\w)")
"""Words in quotes or backticks."""
_FILLER_WORDS = (
    "a an the this that your my our of library package module model file script command tool flag"
    " option action function directly"
)
_FILLERS = frozenset(_FILLER_WORDS.split())
_VAGUE_WORDS = "it them those these any all more so such anything everything there here"
_VAGUE_OBJECTS = frozenset(_VAGUE_WORDS.split())
_MIN_NAME_LENGTH = 2
_TIMELY_CALLS = frozenset({"sleep", "eval", "finish"})
"""Calls that are right at one time and wrong at another, whatever they are forbidden with."""


class Prohibition(NamedTuple):
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
    def is_passing(self) -> bool:
        """Whether it is forbidden for the moment, and not for good."""
        return self.now or self.manner == "call" or self.what.lower() in _TIMELY_CALLS

    @property
    def description(self) -> str:
        """As a reason says it."""
        return f"{self.what}{f' for {self.purpose}' if self.purpose else ''}"


def find_prohibitions(text: str) -> list[Prohibition]:
    """What a message forbids; nothing where its words are not plain."""
    prohibitions = [
        *_matched_prohibitions(_PROHIBITION, text),
        *_matched_prohibitions(_USE_INSTEAD, text),
        *_plain_prohibitions(text),
    ]
    return list(dict.fromkeys(prohibitions))


def files_to_read_first(text: str) -> list[str]:
    """Files that a message wants to be read before anything else is done."""
    files = []
    for match in _READ_FIRST.finditer(text):
        before = (match["before"] or "").strip().lower()
        name = match["what"].strip("`'\"")
        is_file = "." in name or "/" in name or name.isupper()
        if is_file and (not before or before in _WORDS_BEFORE_NOT):
            files.append(name)
    return files


def find_permissions(text: str) -> list[Prohibition]:
    """What a message asks for or allows: it takes an earlier prohibition of the same thing back."""
    return list(dict.fromkeys(_matched_prohibitions(_PERMISSION, text)))


def _matched_prohibitions(pattern: re.Pattern[str], text: str) -> Iterator[Prohibition]:
    for match in pattern.finditer(text):
        verb, rest = match["verb"].lower(), match["rest"]
        before = _SENTENCE_END.split(text[: match.start()])[-1]
        sentence = f"{before} {QUOTED.sub('', rest)}"
        if CONDITION.search(sentence):
            continue
        word = re.search(r"([\w’']+)\s*\Z", before)
        if match.groupdict().get("asks") and word and word[1].lower() not in _WORDS_BEFORE_NOT:
            continue
        if verb in _VERB_MANNERS:
            now = bool(_FOR_NOW.search(sentence))
            for forbidden in _forbidden_objects(_VERB_MANNERS[verb], rest):
                yield forbidden._replace(now=now)
        elif verb in _VERB_ANY_OBJECT:
            yield Prohibition("call", _VERB_ANY_OBJECT[verb])
        elif verb in _VERB_CALLS and not _OBJECT_END.sub("", rest).strip():
            yield Prohibition("call", _VERB_CALLS[verb])


def _plain_prohibitions(text: str) -> Iterator[Prohibition]:
    for manner, pattern in _PLAIN_PROHIBITIONS:
        for match in pattern.finditer(text):
            target = match["rest"].strip("`'\"").rstrip(".")
            before = _SENTENCE_END.split(text[: match.start()])[-1]
            after = _SENTENCE_END.split(text[match.end() :])[0]
            ordinary = target.lower() in _ORDINARY or target.lower().endswith("ing")
            if ordinary or target.lower() in _VERB_MANNERS or len(target) <= _MIN_NAME_LENGTH:
                continue
            if not CONDITION.search(f"{before} {after}"):
                yield Prohibition(manner, target, now=bool(_FOR_NOW.search(f"{before} {after}")))


def _forbidden_objects(manner: str, rest: str) -> Iterator[Prohibition]:
    purpose = ""
    if match := _PURPOSE.search(QUOTED.sub(" x ", rest)):
        purpose = match["what"].lower()
        rest = _PURPOSE.sub("", rest)
    if quoted := QUOTED.findall(rest):
        yield from (Prohibition(manner, name.strip(), purpose) for name in quoted)
        return
    words = [word for word in _OBJECT_END.sub("", rest).split() if word.lower() not in _FILLERS]
    if (
        len(words) == 1
        and words[0].lower() not in _VAGUE_OBJECTS
        and len(words[0]) > _MIN_NAME_LENGTH
    ):
        yield Prohibition(manner, words[0].strip("`'\"*"), purpose)
