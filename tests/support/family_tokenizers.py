"""Tokenizers in the styles of model families, so that none is fetched: small ones that are trained
here, or on the vocabulary of SmolLM2, which comes in a package.

Each has its family's special tokens and its way of cutting text: byte-level BPE with Llama 3's or
DeepSeek's pre-tokenizer, and SentencePiece as Mistral v3 (a space before a text that begins a
prompt) and Gemma (none) have it.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import trainers as tokenizer_trainers

from houston_daemon.prompts.model_dialects import choose_dialect
from houston_daemon.prompts.renderer_dialect import CharacterTokenizer
from houston_daemon.prompts.renderer_families import RENDERER_FAMILIES

REFUSED = {
    "gemma-2": "and no system prompt",
    "gemma-3": "puts the system prompt into the first turn of the user",
    "deepseek-r1": "must be read back as it was said",
    "gpt-oss": "must be those of the model's tokenizer",
}
"""Dialects that cannot be used, with what their refusal says."""
FAMILY_DIALECTS = (
    *("llama-3", "mistral-v3", "deepseek-v3", "gemma-4", "mistral-v13"),
    *(
        family.name
        for family in RENDERER_FAMILIES
        if family.name not in (*REFUSED, "llama-3", "deepseek-v3", "gemma-4")
    ),
)
"""Dialects that have a tokenizer of their own style here."""
_TEXT = ("the step and the file read the file of words, then the calls name arguments",) * 3
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_MISTRAL = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]"),
)
_LATER_MISTRAL = ("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[ARGS]", "[THINK]", "[/THINK]")
_OF_HOUSTON: tuple[str, ...] = (
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "[gMASK]",
    "<sop>",
    "<|system|>",
)
_OF_HOUSTON += ("<|user|>", "<|assistant|>", "<|observation|>", "<s>", "<a>", "<e>", "<o>")
_PLAIN = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "<arg_key>")


@lru_cache(maxsize=64)
def family_tokenizer(
    dialect: str,
    folder: Path,
    text: tuple[str, ...] = _TEXT,
    size: int = 320,
    vocabulary: Path | None = None,
) -> str:
    """Write the `tokenizer.json` of a dialect's family into `folder`; its path.

    text: what it is trained on. size: of its vocabulary, before special tokens. vocabulary: a
    byte-level BPE `tokenizer.json` whose tokens and merges it has instead.
    """
    model = _bpe_of(vocabulary) if vocabulary else None
    chosen = choose_dialect(dialect)
    special = (*_asked_for(dialect), *chosen.markup, *chosen.stop_tokens, *chosen.answer_tokens)
    special = tuple(dict.fromkeys(special))
    plain: Sequence[str] = ()
    if dialect == "mistral-v3":
        tokenizer = _sentence_piece(model or _trained_pieces(text, size), prefix=True)
        special = _MISTRAL
    elif dialect.startswith("gemma"):
        tokenizer = _sentence_piece(model or _trained_pieces(text, size), prefix=False)
        special = ("<pad>", "<unk>", *special)
    else:
        tokenizer = _byte_level(model, text, size, digits=dialect.startswith("deepseek"))
        if dialect.startswith("mistral"):
            special = (*_MISTRAL, *_LATER_MISTRAL)
        elif dialect.startswith("deepseek"):  # all but these two are plain in its tokenizer
            plain = [token for token in special if "sentence" not in token]
            special = tuple(token for token in special if "sentence" in token)
        elif not chosen.markup:
            special, plain = _OF_HOUSTON, _PLAIN
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in plain])
    path = folder / f"{dialect}.json"
    tokenizer.save(str(path))
    return str(path)


def _asked_for(dialect: str) -> tuple[str, ...]:
    """Every token that the family's renderer wants a tokenizer to have."""
    for family in RENDERER_FAMILIES:
        if family.name == dialect:
            tokens = CharacterTokenizer(family.model, family.markup)
            family.make_renderer(tokens, False)
            return tokens.markup
    return ()


Bpe = tuple[list[str], list[tuple[str, str]]]
"""Tokens, and the merges that make them; of bytes as GPT-2 writes them, or of letters."""


def _bpe_of(file: Path) -> Bpe:
    model = json.loads(file.read_text(encoding="utf-8"))["model"]
    merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
    return sorted(model["vocab"], key=model["vocab"].__getitem__), merges


def _byte_level(bpe: Bpe | None, text: Sequence[str], size: int, digits: bool) -> Tokenizer:
    vocabulary = {token: number for number, token in enumerate(bpe[0])} if bpe else {}
    tokenizer = Tokenizer(models.BPE(vocabulary, bpe[1] if bpe else []))
    cuts = [pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated")] if digits else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *cuts,
            pre_tokenizers.Split(Regex(_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    if not bpe:
        tokenizer.train_from_iterator(text, _trainer(size, pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def _trained_pieces(text: Sequence[str], size: int) -> Bpe:
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    letters = sorted({letter for line in text for letter in line.replace(" ", "▁")})
    trained.train_from_iterator(text, _trainer(size, letters))
    model = json.loads(trained.to_str())["model"]
    return list(model["vocab"]), [(first, second) for first, second in model["merges"]]


def _sentence_piece(bpe: Bpe, prefix: bool) -> Tokenizer:
    letters = {token: _letters(token) for token in bpe[0]}
    known = dict.fromkeys(text for text in letters.values() if text)
    merges = [(letters[first], letters[second]) for first, second in bpe[1]]
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *known]
    tokenizer = Tokenizer(
        models.BPE(
            {piece: number for number, piece in enumerate(pieces)},
            [pair for pair in merges if all(pair) and "".join(pair) in known],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    spaces = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if prefix:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        spaces.append(decoders.Strip(" ", 1, 0))
    else:
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(spaces)
    return tokenizer


def _letters(token: str) -> str:
    """A token of GPT-2's bytes as SentencePiece writes it; empty where it is half a letter."""
    if "▁" in token:
        return token
    text = str(decoders.ByteLevel().decode([token]))
    return "" if "\ufffd" in text else text.replace(" ", "▁")


def _trainer(size: int, alphabet: Sequence[str]) -> tokenizer_trainers.BpeTrainer:
    return tokenizer_trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=list(alphabet), show_progress=False
    )
