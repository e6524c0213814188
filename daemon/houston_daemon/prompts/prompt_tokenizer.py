"""Text to token ids and back, for engines that take ids; an estimate for engines without.

The one place that encodes: markup pieces with special tokens, content with every added token as
ordinary letters, so that a file holding `<|im_end|>` or `<tool_call>` cannot speak as markup. It
does not know what the text is for.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer

from houston_daemon.prompts.dialect_protocol import PromptPiece
from houston_daemon.prompts.token_limits import OBSERVATION_LABEL, cut_middle
from houston_shared.errors import ConfigurationError


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
        added_tokens = self._tokenizer.get_added_tokens_decoder().values()
        # Special ones are switched off by the tokenizer itself; these it would still take whole.
        plain = sorted((token.content for token in added_tokens if not token.special), key=len)
        self._added = re.compile("|".join(map(re.escape, reversed(plain)))) if plain else None

    def encode(self, pieces: Iterable[PromptPiece]) -> list[int]:
        """Token ids of all pieces, one after the other; each is encoded by itself."""
        ids: list[int] = []
        for piece in pieces:
            ids += self._markup(piece.text) if piece.template else self._content(piece.text)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`, special tokens shown."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def id_of(self, token: str) -> int | None:
        """Id of a special token; None when the vocabulary has none."""
        number = self._tokenizer.token_to_id(token)
        return None if number is None else int(number)

    @property
    def special(self) -> dict[int, str]:
        """Special tokens by id: what a template writes, and no text."""
        added_tokens = self._tokenizer.get_added_tokens_decoder().items()
        return {int(id): str(token.content) for id, token in added_tokens if token.special}

    def count(self, text: str) -> int:
        """Tokens of content."""
        return len(self._content(text))

    def cut(self, text: str, limit: int, label: str = OBSERVATION_LABEL) -> str:
        """`text` with its middle left out where it has more than `limit` tokens; says so.

        label: what was too long, for the note.
        """
        if len(text) <= limit:  # a token is never less than a character here
            return text
        self._tokenizer.encode_special_tokens = True
        offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return cut_middle(text, limit, offsets, label)

    def _markup(self, text: str) -> list[int]:
        self._tokenizer.encode_special_tokens = False
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _content(self, text: str) -> list[int]:
        self._tokenizer.encode_special_tokens = True
        ids: list[int] = []
        for part in self._broken(text):
            ids += self._tokenizer.encode(part, add_special_tokens=False).ids
        return ids

    def _broken(self, text: str) -> list[str]:
        """The text in parts none of which holds a whole added token."""
        if not self._added:
            return [text]
        ends = [match.start() + 1 for match in self._added.finditer(text)]
        return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]


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
