"""JSON schemas as masks over the vocabulary, through llguidance, without free whitespace.

Free whitespace lets a small model run off into blanks until its budget is spent. Once the text is
complete only an end token is allowed. Knows nothing of sampling.
"""

from typing import Any

import llguidance
import llguidance.hf
import msgspec
import numpy as np
import torch
from transformers import PreTrainedTokenizerBase


class GrammarError(ValueError):
    """The schema cannot be made into a grammar."""


class Grammar:
    """One text being written under a schema."""

    def __init__(self, tokenizer: llguidance.LLTokenizer, schema: dict[str, Any] | str) -> None:
        text = schema if isinstance(schema, str) else msgspec.json.encode(schema).decode()
        try:
            compiled = llguidance.LLMatcher.grammar_from_json_schema(
                text, defaults={"whitespace_flexible": False}
            )
        except ValueError as problem:
            raise GrammarError(str(problem)) from problem
        self._matcher = llguidance.LLMatcher(tokenizer, compiled)
        self._size = tokenizer.vocab_size
        if self._matcher.is_error():
            raise GrammarError(self._matcher.get_error())

    def allowed(self, vocabulary: int) -> torch.Tensor:
        """Return which ids may come next, shape (vocabulary,)."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        mask = np.zeros(vocabulary, dtype=bool)
        known = np.unpackbits(bits, bitorder="little")[: min(self._size, vocabulary)]
        mask[: len(known)] = known
        return torch.from_numpy(mask)

    def accept(self, token: int) -> None:
        """Go on after `token`, which `allowed` had allowed."""
        self._matcher.consume_token(token)


def grammar_tokenizer(
    tokenizer: PreTrainedTokenizerBase, vocabulary: int, ends: list[int]
) -> llguidance.LLTokenizer:
    """Prepare the vocabulary once. ends: ids that may follow a complete text."""
    return llguidance.hf.from_tokenizer(tokenizer, n_vocab=vocabulary, eos_token=ends)
