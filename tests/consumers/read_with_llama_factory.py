"""Run in LLaMA-Factory's environment: FOLDER. Prints what its own loader and collator make of an
export: `get_dataset` with `tokenized_path`, then `SFTDataCollatorWith4DAttentionMask`.

LLaMA-Factory imports torchaudio, for rows with sound; its wheels fit neither this torch
nor one without CUDA, so an empty module stands in its place.
"""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

sys.modules["torchaudio"] = ModuleType("torchaudio")
from llamafactory.data import SFTDataCollatorWith4DAttentionMask, get_dataset  # noqa: E402
from llamafactory.data.template import TEMPLATES  # noqa: E402
from llamafactory.extras.constants import IGNORE_INDEX  # noqa: E402


def read(folder: Path) -> dict[str, list[dict]]:
    arguments = SimpleNamespace(tokenized_path=str(folder), streaming=False)
    module = get_dataset(TEMPLATES["empty"], None, arguments, None, "sft", None)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"<pad>": 0}, "<pad>")), pad_token="<pad>"
    )
    tokenizer.padding_side = "right"
    collator = SFTDataCollatorWith4DAttentionMask(
        template=TEMPLATES["empty"],
        tokenizer=tokenizer,
        label_pad_token_id=IGNORE_INDEX,
        pad_to_multiple_of=8,
    )
    found = {}
    for name, dataset in module.items():
        rows = []
        for at in range(0, len(dataset), 2):
            batch = collator([dataset[i] for i in range(at, min(at + 2, len(dataset)))])
            for ids, seen, labels in zip(
                batch["input_ids"], batch["attention_mask"], batch["labels"], strict=True
            ):
                length = int(seen.sum())
                assert seen[:length].all() and (labels[length:] == IGNORE_INDEX).all()
                rows.append({"ids": ids[:length].tolist(), "labels": labels[:length].tolist()})
        found[name] = rows
    return found


if __name__ == "__main__":
    print(json.dumps(read(Path(sys.argv[1]))))
