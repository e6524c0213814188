"""The tokenizer of a tiny policy: one id for each word of its vocabulary, as files in its folder.

Lower case only, signs dropped, digits one by one; unknown words are `<unk>`. The special tokens are
those of the dialect `words`. Text can never spell one of them, since its signs are removed before
words are looked up. Writes `tokenizer.json` and a config that transformers' `AutoTokenizer`, the
embedded engine and vLLM read.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from houston_daemon.prompts.words_dialect import BEGIN, END, MARKUP, PADDING, UNKNOWN


def write_word_tokenizer(folder: Path, words: Sequence[str]) -> Path:
    """Write `tokenizer.json` and `tokenizer_config.json`; the path of the first.

    words: of the vocabulary, in the order of their ids, behind the special tokens.
    """
    vocabulary = {word: id for id, word in enumerate(dict.fromkeys((*MARKUP, *words)))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), normalizers.Replace(Regex(r"[^\w\s]|_"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(individual_digits=True)]
    )
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in MARKUP])
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "tokenizer.json"
    tokenizer.save(str(file))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BEGIN,
        "eos_token": END,
        "pad_token": PADDING,
        "unk_token": UNKNOWN,
        "model_max_length": 512,
        "clean_up_tokenization_spaces": False,
    }
    text = json.dumps(config, indent=1) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
    return file
