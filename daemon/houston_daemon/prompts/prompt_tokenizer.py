"""Text to token ids and back, for engines that take ids; an estimate for other engines.

The only place that encodes: markup with special tokens, content with every added token as ordinary
letters, so that a file holding `<|im_end|>` or `<tool_call>` cannot act as markup. A tokenizer that
adds a space before its text (SentencePiece) gets all text between two markup tokens at once, after
a token of ours, so the ids are those of the whole prompt. It does not know the text's purpose.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

from houston_daemon.prompts.dialect_protocol import PromptPiece
from houston_daemon.prompts.token_limits import OBSERVATION_LABEL, cut_middle
from houston_shared.errors import ConfigurationError

_ANCHOR = "\ufdd2"
"""A token of ours, before text that does not begin a prompt; a noncharacter of Unicode."""


class PromptTokenizer:
    """One tokenizer file (`tokenizer.json`)."""

    def __init__(self, path: str) -> None:
        file = Path(path)
        if not file.is_file():
            raise ConfigurationError(
                f"There is no tokenizer file {path}.",
                "The engine cannot be used with token ids.",
                "Set `tokenizer` of the engine in houston.toml.",
            )
        self.path = str(file)
        try:
            self._tokenizer = Tokenizer.from_file(self.path)
        except Exception as problem:  # the library raises nothing narrower
            raise ConfigurationError(
                f"{path} is no tokenizer: {problem}.",
                "The engine cannot be used with token ids.",
                "Set `tokenizer` of the engine in houston.toml to the model's tokenizer.json.",
            ) from problem
        # A file may say how somebody's training cut and padded its texts.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        added_tokens = self._tokenizer.get_added_tokens_decoder().values()
        self._prefixes = _prefixes_text(self._tokenizer)
        if self._prefixes:
            names = sorted((token.content for token in added_tokens), key=len, reverse=True)
            self._names = re.compile(f"({'|'.join(map(re.escape, names)) or '(?!)'})")
            self._tokenizer.add_tokens([AddedToken(_ANCHOR, normalized=False)])
            self._anchor = self._markup(_ANCHOR)
            added_tokens = self._tokenizer.get_added_tokens_decoder().values()
        # Special ones are switched off by the tokenizer itself; these it would still take whole.
        plain = sorted((token.content for token in added_tokens if not token.special), key=len)
        self._added = re.compile("|".join(map(re.escape, reversed(plain)))) if plain else None

    def encode(self, pieces: Iterable[PromptPiece]) -> list[int]:
        """Token ids of all pieces, in order. Each piece is encoded separately; if the tokenizer
        would add a space before each, all text between two markup tokens is encoded at once."""
        if self._prefixes:
            return self._encode_whole(pieces)
        ids: list[int] = []
        for piece in pieces:
            ids += self._markup(piece.text) if piece.template else self._content(piece.text)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`, special tokens shown."""
        if not self._prefixes:
            return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))
        text = self._tokenizer.decode([*self._anchor, *ids], skip_special_tokens=False)
        return str(text).removeprefix(_ANCHOR)

    def id_of(self, token: str) -> int | None:
        """Id of a special token; None when the vocabulary has none."""
        number = self._tokenizer.token_to_id(token)
        return None if number is None else int(number)

    def first_missing_token(self, tokens: Iterable[str]) -> str:
        """The first of `tokens` that is not a single token of the vocabulary; empty where all
        are."""
        return next((token for token in tokens if self._markup(token) != [self.id_of(token)]), "")

    @property
    def special(self) -> dict[int, str]:
        """Special tokens by id: those of a template, which are not text."""
        added_tokens = self._tokenizer.get_added_tokens_decoder().items()
        return {int(id): str(token.content) for id, token in added_tokens if token.special}

    def count(self, text: str) -> int:
        """Tokens of content."""
        return len(self._content(text))

    def cut(self, text: str, limit: int, label: str = OBSERVATION_LABEL) -> str:
        """`text` with its middle left out where it has more than `limit` tokens; says so.

        label: what was too long, for the note.
        """
        if len(text.encode("utf-8", "replace")) <= limit:  # a token is a byte at least
            return text
        self._tokenizer.encode_special_tokens = True
        offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return cut_middle(text, limit, offsets, label)

    def _markup(self, text: str) -> list[int]:
        self._tokenizer.encode_special_tokens = False
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _content(self, text: str) -> list[int]:
        self._tokenizer.encode_special_tokens = True
        anchor = _ANCHOR if self._prefixes else ""
        ids: list[int] = []
        for part in self._split_added_tokens(text):
            encoded = self._tokenizer.encode(anchor + part, add_special_tokens=False).ids
            ids += encoded[len(anchor) :]
        return ids

    def _encode_whole(self, pieces: Iterable[PromptPiece]) -> list[int]:
        ids: list[int] = []
        text = ""
        for piece in pieces:
            parts = self._names.split(piece.text) if piece.template else [piece.text]
            text += parts[0]
            for token, following in zip(parts[1::2], parts[2::2], strict=True):
                ids += [*self._content(text), *self._markup(token)]
                text = following
        return ids + self._content(text)

    def _split_added_tokens(self, text: str) -> list[str]:
        """The text in parts none of which holds a whole added token."""
        if not self._added:
            return [text]
        ends = [match.start() + 1 for match in self._added.finditer(text)]
        return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]


def _prefixes_text(tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer puts a space before what it encodes."""
    text = tokenizer.normalizer.normalize_str("a") if tokenizer.normalizer else "a"
    if tokenizer.pre_tokenizer:
        text = "".join(part for part, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text))
    return text != "a"


def load_prompt_tokenizer(path: str) -> PromptTokenizer:
    """The tokenizer of a file; the rollouts of one process read it once while it stays the same.

    Raises as `PromptTokenizer` does.
    """
    try:
        stat = Path(path).stat()
    except OSError:  # said by who reads it
        return PromptTokenizer(path)
    return _read_tokenizer(path, (stat.st_ino, stat.st_size, stat.st_mtime_ns))


@lru_cache(maxsize=4)
def _read_tokenizer(path: str, version: tuple[int, int, int]) -> PromptTokenizer:
    del version
    return PromptTokenizer(path)


class TokenEstimator:
    """Token counts reckoned from bytes, for engines without token ids: four bytes a token."""

    def count(self, text: str) -> int:
        """About how many tokens `text` has."""
        return len(text.encode("utf-8", "replace")) // 4 + 1

    def cut(self, text: str, limit: int, label: str = OBSERVATION_LABEL) -> str:
        """`text` with its middle left out where it has more than about `limit` tokens."""
        if self.count(text) <= limit:
            return text
        width = max(1, len(text) * 4 // len(text.encode("utf-8", "replace")))
        offsets = [(start, start + width) for start in range(0, len(text), width)]
        return cut_middle(text, limit, offsets, label)
