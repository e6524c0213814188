"""Whether it can be seen that a person's message is followed: the words of it that a step can name.

A file, a flag, quoted words, a submission, or something forbidden can be looked for in the steps
after the message; "be more careful" cannot. Sentences with a condition, and questions, count as
asking for nothing. It reads text and knows no step; the review decides what an agent did.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from houston_shared.guidance_prohibitions import (
    CONDITION,
    QUOTED,
    files_to_read_first,
    find_prohibitions,
)
from houston_shared.records import EVALUATION_CALL

_SENTENCE = re.compile(r"(?P<words>.+?)(?P<end>[.;!?\n](?!\w)|\Z)", re.DOTALL)
_NAME = re.compile(r"(?<![\w./-])(?:--?[a-z][\w-]+|[\w-]*[\w/-][./_][\w./-]*\w)")
"""A flag; or a word with a dot, a slash or an underscore in it, such as a path or an identifier."""
_SUBMISSION = re.compile(
    r"\A\W*(?:(?:please|now|then|just|and|first|so)\s+)*(?:submit|evaluate|call\s+eval)\b", re.I
)
_MIN_CHARACTERS = 3
"""Characters of a word that is looked for."""
_NUMBER = re.compile(r"[\d.,/-]+\Z")


@lru_cache(maxsize=8192)
def can_be_checked(text: str) -> bool:
    """Whether a message names or forbids anything, so that it can be seen whether an agent follows
    it. Any other message cannot be checked by its words."""
    return bool(asked_words(text) or find_prohibitions(text) or files_to_read_first(text))


def asked_words(text: str) -> tuple[str, ...]:
    """Words of which an agent that follows a message names at least one; none where it names
    nothing, in lower case."""
    forbidden = {each.what.lower() for each in find_prohibitions(text)}
    words = (word for sentence in _plain_sentences(text) for word in _named_words(sentence))
    return tuple(
        dict.fromkeys(
            word
            for word in words
            if len(word) >= _MIN_CHARACTERS
            and not _NUMBER.match(word)
            and not any(word in what for what in forbidden)
        )
    )


def _plain_sentences(text: str) -> Iterator[str]:
    for sentence in _SENTENCE.finditer(text):
        if sentence["end"] != "?" and not CONDITION.search(QUOTED.sub("", sentence["words"])):
            yield sentence["words"]


def _named_words(sentence: str) -> Iterator[str]:
    if _SUBMISSION.match(sentence):
        yield EVALUATION_CALL
    for quoted in QUOTED.findall(sentence):
        yield from quoted.lower().split()
    for name in _NAME.findall(QUOTED.sub(" ", sentence)):
        yield name.lower()
