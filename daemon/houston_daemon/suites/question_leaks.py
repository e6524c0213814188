"""Questions of an evaluation that were in the training data, found by text and by numbers.

AgentFlow-Pro removes problems of the test set from its training set; here the evaluation loses
them, since a policy cannot unlearn. A question is dropped where its normalised text is part of a
training text or the other way round, or where a training text has the same numbers and most of the
same words: a reworded problem. The same words with other numbers are another problem. Pure
functions.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

MIN_TEXT_CHARACTERS = 30
"""Letters and digits of a text that is sought within another: shorter ones stand in many."""
MIN_NUMBERS = 2
"""Different numbers that a question must have to be found by them: one alone says little."""
SAME_WORDS = 0.5
"""Share of all words of both that both have. A rewording keeps the things that a problem is about:
in the tests a reworded problem of AIME 2024 shares 0.68, another one with the same numbers 0.03."""

_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?")
"""`1,000` is one number, `1,2,3` are three."""
_WORD = re.compile(r"[^\W\d_]{3,}")
_NO_LETTER = re.compile(r"[\W_]+")
_LATEX = re.compile(r"\\(?:left|right|displaystyle|text|mathrm|[,;:! ])|[$~]")


class TrainingText(NamedTuple):
    """A text that something was trained on."""

    where: str
    text: str


class Leak(NamedTuple):
    """A question that is dropped."""

    id: str
    where: str
    """Of the training text."""
    why: Literal["text", "numbers"]


class _NormalizedText(NamedTuple):
    plain: str
    """In one case, without what only sets LaTeX."""
    letters: str
    """Letters and digits alone."""
    numbers: tuple[str, ...]

    @property
    def words(self) -> set[str]:
        return set(_WORD.findall(self.plain))


def _normalize(text: str) -> _NormalizedText:
    plain = _LATEX.sub(" ", unicodedata.normalize("NFKC", text)).casefold()
    numbers = sorted(number.replace(",", "") for number in _NUMBER.findall(plain))
    return _NormalizedText(plain, _NO_LETTER.sub("", plain), tuple(numbers))


class _Index:
    """Finds the questions that a text may hold, or be a part of, without comparing them all.

    Where one of two texts stands in the other and has MIN_TEXT_CHARACTERS letters, a window of the
    longer one at a multiple of the stride begins within the first letters of the shorter one.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        """texts: letters of each question, by its id."""
        self._by_text: dict[str, list[str]] = defaultdict(list)
        self._by_first_window: dict[str, list[str]] = defaultdict(list)
        self._by_window: dict[str, list[str]] = defaultdict(list)
        for id, letters in texts.items():
            if letters:
                self._by_text[letters].append(id)
            for window in _first_windows(letters):
                self._by_first_window[window].append(id)
            for window in _strided_windows(letters):
                self._by_window[window].append(id)

    def candidates(self, letters: str) -> set[str]:
        """Ids of questions; those that share a window only are among them."""
        ids = set(self._by_text.get(letters, ()))
        for window in _strided_windows(letters):
            ids.update(self._by_first_window.get(window, ()))
        for window in _first_windows(letters):
            ids.update(self._by_window.get(window, ()))
        return ids


_STRIDE = MIN_TEXT_CHARACTERS // 2
_WINDOW = MIN_TEXT_CHARACTERS - _STRIDE + 1


def _first_windows(letters: str) -> list[str]:
    starts = range(min(_STRIDE, len(letters) - _WINDOW + 1))
    return [letters[start : start + _WINDOW] for start in starts]


def _strided_windows(letters: str) -> list[str]:
    starts = range(0, len(letters) - _WINDOW + 1, _STRIDE)
    return [letters[start : start + _WINDOW] for start in starts]


def find_leaks(
    questions: Sequence[tuple[str, str]], training: Iterable[TrainingText]
) -> list[Leak]:
    """Questions found in a training text, in their order; each once, with the first such text.

    questions: id and text. A training text may hold more than a question, such as instructions
    before it. Both directions are checked: 1,000 questions in 20,000 texts take seconds.
    """
    by_id = {id: _normalize(text) for id, text in questions}
    index = _Index({id: normalized.letters for id, normalized in by_id.items()})
    by_numbers: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for id, normalized in by_id.items():
        if len(set(normalized.numbers)) >= MIN_NUMBERS:
            by_numbers[normalized.numbers].append(id)
    leaks: dict[str, Leak] = {}
    for trained in training:
        other = _normalize(trained.text)
        for id in index.candidates(other.letters):
            if id not in leaks and _same_text(by_id[id].letters, other.letters):
                leaks[id] = Leak(id, trained.where, "text")
        for id in by_numbers.get(other.numbers, ()):
            if id not in leaks and _shared_words(by_id[id].words, other.words) >= SAME_WORDS:
                leaks[id] = Leak(id, trained.where, "numbers")
    return [leaks[id] for id, _ in questions if id in leaks]


def _same_text(one: str, other: str) -> bool:
    if one == other:
        return True
    shorter, longer = sorted((one, other), key=len)
    return len(shorter) >= MIN_TEXT_CHARACTERS and shorter in longer


def _shared_words(one: set[str], other: set[str]) -> float:
    return len(one & other) / max(1, len(one | other))
