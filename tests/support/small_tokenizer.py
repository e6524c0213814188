"""A real, small tokenizer: byte-level BPE with special tokens and with plain added ones."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = (
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "[gMASK]",
    "<sop>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
)
PLAIN = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "<arg_key>")
DIALECT_NAMES = ("chatml-calls", "chatml-json", "glm45", "hermes", "qwen3", "words")
"""Dialects that it has the tokens of."""
_TEXT = ["the step and the file read the file of words, then the calls name arguments"] * 3


def small_tokenizer(folder: Path, text: Sequence[str] = _TEXT, size: int = 320) -> str:
    """Write `tokenizer.json` into `folder`; its path.

    text: what it is trained on. size: of its vocabulary, before special and added tokens.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(text, trainer)
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in PLAIN])
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return str(path)
