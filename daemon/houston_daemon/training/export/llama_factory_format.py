"""The format of LLaMA-Factory: a tokenized dataset, as its `tokenized_path` reads it.

LLaMA-Factory's conversations have no weight for an answer: all answers are trained, or with
`mask_history` only the last. It stores tokenized data as a folder of Arrow files and reads it back
without rendering. The export is such a folder, so masked tokens stay masked.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from houston_daemon.training.export import export_format
from houston_daemon.training.export.export_format import (
    ExportColumn,
    ExportFormat,
    ExportLine,
    no_remarks,
)
from houston_daemon.training.rows.training_row import TokenRow

_SPLITS = {"data": "train", "held_out": "validation"}
"""What LLaMA-Factory calls what the files hold."""
SUPPORT_FILE_NAMES = (
    "dataset_dict.json",
    *(
        f"{split}/{name}"
        for split in _SPLITS.values()
        for name in ("dataset_info.json", "state.json")
    ),
)


def llama_factory_support_files(data: Sequence[tuple[str, str]]) -> Mapping[str, bytes]:
    """What `datasets.load_from_disk` wants beside the data: one folder for each split."""
    splits = [(_SPLITS[name.partition(".")[0]], name, sha256) for name, sha256 in data]
    contents: dict[str, Any] = {"dataset_dict.json": {"splits": [split for split, _, _ in splits]}}
    for split, name, sha256 in splits:
        contents[f"{split}/dataset_info.json"] = {}
        contents[f"{split}/state.json"] = {
            "_data_files": [{"filename": f"../{name}"}],
            "_fingerprint": sha256[:16],
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": split,
        }
    return {path: json.dumps(value, indent=1).encode() for path, value in contents.items()}


def llama_factory_lines(row: TokenRow) -> list[ExportLine]:
    """One line a row; none where nothing of it is trained."""
    if not row.trained:
        return []
    return [
        {
            "input_ids": row.token_ids.tolist(),
            "attention_mask": [1] * len(row.token_ids),
            "labels": row.labels().tolist(),
        }
    ]


def llama_factory_problem(line: ExportLine) -> str:
    """What LLaMA-Factory would train otherwise than we mean it."""
    ids, labels = line["input_ids"], line["labels"]
    if line.keys() != {"input_ids", "attention_mask", "labels"}:
        return "it has a column that LLaMA-Factory's collator cannot pad"
    if line["attention_mask"] != [1] * len(ids):
        return "a token is not attended to"
    return export_format.labels_problem(ids, labels)


LLAMA_FACTORY = ExportFormat(
    name="llama-factory",
    description="LLaMA-Factory's SFT: a tokenized dataset for tokenized_path, trained as it is",
    unit="ids",
    lines=llama_factory_lines,
    line_problem=llama_factory_problem,
    remarks=no_remarks,
    arrow=True,
    index=True,
    support_files=llama_factory_support_files,
    warnings=(
        "Set tokenized_path: DIR (and stage: sft). LLaMA-Factory then ignores dataset, cutoff_len,"
        " packing, mask_history and every other data setting; template must be set but has no"
        " effect.",
        "cutoff_len does not cut: the longest row must fit into memory.",
        "If tokenized_path is missing or empty, it is silently made from `dataset`: check that the"
        " folder exists.",
    ),
    columns=(
        ExportColumn("input_ids", "ids"),
        ExportColumn("attention_mask", "ids"),
        ExportColumn("labels", "ids"),
    ),
    only_lines="LLaMA-Factory reads a tokenized dataset only from Arrow files (data.arrow)",
)
