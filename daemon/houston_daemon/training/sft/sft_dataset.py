"""The exact rows of an export, cut to length, as the passes that the batch plan asks for.

Rows are written once into an Arrow file of the run, which every process maps into memory. What is
cut, and what had nothing left to train, is counted and named. It does not decide which rows a
pass holds.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy
import pyarrow
import pyarrow.parquet
import torch
from datasets import Dataset

from houston_daemon.training.policies.policy_files import hash_file
from houston_daemon.training.rows.training_row import IGNORED_LABEL
from houston_daemon.training.sft.batch_plan import OptimizerStep, RowPack
from houston_daemon.training.sft.sft_recipe import NOTHING_TRAINED_MESSAGE
from houston_shared import atomic_file
from houston_shared.errors import HoustonError

COLUMNS = ("input_ids", "labels", "weights", "row", "kind")
_ROWS_PER_READ = 64
"""Rows that are read at once."""
_ARROW_SCHEMA = pyarrow.schema(
    [
        ("input_ids", pyarrow.list_(pyarrow.int32())),
        ("weights", pyarrow.list_(pyarrow.float32())),
        ("row", pyarrow.string()),
        ("kind", pyarrow.string()),
    ]
)


class PreparedRows(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the rows of an export."""

    rows: int
    """Rows to train."""
    tokens: int
    trained: int
    """Tokens with a weight, of the rows to train."""
    cut: int
    """Rows that were longer than max_length and lost their end."""
    dropped: tuple[str, ...]
    """Rows with nothing to train, by name."""
    max_length: int
    size: int = 0
    """Bytes of the file: what a power cut has shortened is written again."""


@dataclass(frozen=True)
class MappedRows:
    """Rows in a mapped file."""

    table: Any
    lengths: list[int]
    kinds: list[str]
    prepared: PreparedRows

    def ids(self, row: int) -> torch.Tensor:
        """Its token ids, shape (length,), int64."""
        return _to_tensor(self.table["input_ids"][row]).long()

    def weights(self, row: int) -> torch.Tensor:
        """Its weights, shape (length,), float32."""
        return _to_tensor(self.table["weights"][row])


def exported_data_file(folder: Path, stem: str = "data") -> Path | None:
    """The rows of an exported folder, as parquet or JSON Lines."""
    files = (folder / f"{stem}{suffix}" for suffix in (".parquet", ".jsonl"))
    return next((file for file in files if file.is_file()), None)


class NothingToTrain(HoustonError):
    """No row has a token with a weight."""


def prepare_rows(
    source: Path, target: Path, max_length: int, sha256: str = "", words: int | None = None
) -> None:
    """Write the rows of `source` into the Arrow file `target`, and beside it what became of them.

    Does nothing where both are there. sha256: what a manifest says of `source`. words: rows of the
    model's embeddings. Raises HoustonError for rows that cannot be trained, and for others than the
    manifest names.
    """
    counts_file = target.with_suffix(".json")
    if _is_prepared(target, counts_file):
        return
    if sha256:
        _check_hash(source, sha256)
    new_file = target.with_suffix(".new.arrow")
    counts, dropped = _write_rows(source, new_file, max_length, words)
    if not counts["rows"]:
        new_file.unlink()
        raise NothingToTrain(
            f"No row of {source} has a token to train within {max_length} tokens.",
            NOTHING_TRAINED_MESSAGE,
            "Next: a new run, of rollouts with kept steps, or with a larger --set max_length=… "
            "where the model's window is longer",
        )
    size = _sync_file(new_file)
    new_file.replace(target)
    prepared = PreparedRows(**counts, dropped=tuple(dropped), max_length=max_length, size=size)
    atomic_file.write_atomically(counts_file, msgspec.json.encode(prepared))


def _write_rows(
    source: Path, target: Path, max_length: int, words: int | None
) -> tuple[dict[str, int], list[str]]:
    """Write what there is to train. Returns counts for `PreparedRows`, and the rows left out."""
    counts, dropped = {"rows": 0, "tokens": 0, "trained": 0, "cut": 0}, []
    with (
        pyarrow.OSFile(str(target), "wb") as sink,
        pyarrow.ipc.new_file(sink, _ARROW_SCHEMA) as writer,
    ):
        for exported in _iterate_rows(source):
            ids, weights = exported["input_ids"][:max_length], exported["weights"][:max_length]
            _check_words(ids, words, f"row {exported['row']!r} of {source.name}")
            trained = int((weights[1:] > 0).sum())  # nothing predicts the first
            if not trained:
                dropped.append(exported["row"])
                continue
            counts["rows"] += 1
            counts["tokens"] += len(ids)
            counts["trained"] += trained
            counts["cut"] += len(exported["input_ids"]) > max_length
            row = {**exported, "input_ids": ids, "weights": weights}
            writer.write_batch(pyarrow.RecordBatch.from_pylist([row], schema=_ARROW_SCHEMA))
    return counts, dropped


def _check_words(ids: "numpy.ndarray[Any, Any]", words: int | None, name: str) -> None:
    """Raise HoustonError for an id that the model has no embedding of, or is none."""
    lowest, highest = int(ids.min(initial=0)), int(ids.max(initial=0))
    wrong = lowest if lowest < 0 else highest
    if wrong < 0 or (words is not None and wrong >= words):
        bounds = "" if words is None else f": its embeddings cover ids 0 to {words - 1}"
        raise HoustonError(
            f"{name} has the token id {wrong}, which the model to train lacks{bounds}.",
            NOTHING_TRAINED_MESSAGE,
            "Next: a new run with the model that the rows were made for (--base DIR), or export the"
            " rollouts again with --tokenizer and --dialect of this one",
        )


def _is_prepared(target: Path, counts_file: Path) -> bool:
    """Whether both files are there as they were written."""
    try:
        counts = msgspec.json.decode(counts_file.read_bytes(), type=PreparedRows)
        return target.stat().st_size == counts.size
    except (OSError, msgspec.DecodeError):  # not yet, or not whole: they are written again
        return False


def _check_hash(source: Path, sha256: str) -> None:
    if hash_file(source) == sha256:
        return
    raise HoustonError(
        f"{source} is not the file that the manifest next to it describes.",
        "Nothing was trained: the data could not be identified.",
        "Export the rollouts again",
    )


def _sync_file(file: Path) -> int:
    """Its size, once it is on the disk."""
    with file.open("rb") as data:
        os.fsync(data.fileno())
        return os.fstat(data.fileno()).st_size


def load_rows(file: Path) -> MappedRows:
    """The rows that `prepare_rows` wrote."""
    table = pyarrow.ipc.open_file(pyarrow.memory_map(str(file))).read_all()
    lengths = pyarrow.compute.list_value_length(table["input_ids"]).to_pylist()
    prepared = msgspec.json.decode(file.with_suffix(".json").read_bytes(), type=PreparedRows)
    return MappedRows(table, lengths, table["kind"].to_pylist(), prepared)


class PassDataset:
    """The passes of one step and process, as one item; made when a data loader collates it.

    Item `step * processes + process` is what accelerate gives that process in that step.
    """

    def __init__(self, rows: MappedRows, steps: Sequence[OptimizerStep], row_lengths: bool) -> None:
        """row_lengths: whether the attention takes several rows (`sft_model.rows_attention`)."""
        self._rows = rows
        self._shares = [share for step in steps for share in step.passes_per_process]
        self._row_lengths = row_lengths

    def numbers(self) -> Dataset:
        """The items by number, as the data set that TRL asks for."""
        return Dataset.from_dict({"item": list(range(len(self._shares)))})

    def __call__(self, items: Sequence[dict[str, int]]) -> dict[str, Any]:
        """The collator: one item, whole."""
        (item,) = items
        return self.item(item["item"])

    def item(self, number: int) -> dict[str, Any]:
        """All passes of an item."""
        return {"passes": [self.make_pass(pack) for pack in self._shares[number]]}

    def make_pass(self, pack: RowPack) -> dict[str, Any]:
        """One pass: ids and positions of shape (1, tokens), and which positions predict what.

        The token at `targets` is predicted at the position before it, never across two rows.
        """
        weight = 1.0 if pack else 0.0  # an empty pass computes two tokens that weigh nothing
        rows = [(self._rows.ids(row), self._rows.weights(row)) for row in pack or (0,)]
        if not pack:
            rows = [(ids[:2], weights[:2]) for ids, weights in rows]
        ids = torch.cat([ids for ids, _ in rows])
        weights = torch.cat([weights for _, weights in rows]) * weight
        places = torch.cat([torch.arange(len(ids)) for ids, _ in rows])
        trained = ((weights > 0) & (places > 0)).nonzero().flatten()
        inputs: dict[str, Any] = {
            "input_ids": ids[None],
            "position_ids": places[None],
            "predicts": trained - 1,
            "targets": ids[trained],
            "weights": weights[trained],
        }
        if self._row_lengths:
            inputs["row_lengths"] = [len(ids) for ids, _ in rows]
        return inputs


def _iterate_rows(source: Path) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(_read_rows(source)):
        if not isinstance(row, dict):
            raise HoustonError(
                f"Row {number} of {source.name} is not an object.", NOTHING_TRAINED_MESSAGE
            )
        yield _check_row(row, f"row {row.get('row', number)!r} of {source.name}")


def _read_rows(source: Path) -> Iterator[Any]:
    """Rows as they stand there, of Parquet with lists of numbers as arrays."""
    try:
        if source.suffix == ".parquet":
            file = pyarrow.parquet.ParquetFile(source)
            columns = [name for name in COLUMNS if name in file.schema_arrow.names]
            for batch in file.iter_batches(batch_size=_ROWS_PER_READ, columns=columns):
                for n in range(batch.num_rows):
                    yield {name: _python_value(batch[name][n]) for name in columns}
        else:
            with source.open("rb") as lines:
                for line in lines:
                    yield msgspec.json.decode(line)
    except (pyarrow.ArrowException, msgspec.DecodeError, OSError) as problem:
        raise HoustonError(
            f"{source} cannot be read: {problem}.", NOTHING_TRAINED_MESSAGE
        ) from None


def _python_value(scalar: Any) -> Any:
    values = getattr(scalar, "values", None)  # None also for a list that is missing
    return scalar.as_py() if values is None else values.to_numpy()


def _check_row(row: dict[str, Any], name: str) -> dict[str, Any]:
    """A row with weights; plain TRL rows have only labels."""
    if "input_ids" not in row or not {"labels", "weights"} & row.keys():
        raise HoustonError(
            f"The data have no input_ids with labels or weights ({name}).",
            NOTHING_TRAINED_MESSAGE,
            "houston export R… --format trl --out DIR",
        )
    ids = _whole_numbers(row["input_ids"], f"input_ids in {name}")
    labels = _whole_numbers(row.get("labels", ids), f"labels in {name}")
    weights = row.get("weights")
    if weights is None:
        weights = labels != IGNORED_LABEL
    weights = _numbers(weights, f"weights in {name}").astype(numpy.float32)
    sound = ids.shape == weights.shape == labels.shape and bool(
        numpy.all(numpy.isfinite(weights) & (weights >= 0))
    )
    if sound and "labels" in row:
        sound = bool(numpy.array_equal(labels, numpy.where(weights > 0, ids, IGNORED_LABEL)))
    if not sound:
        raise HoustonError(
            f"Ids, labels and weights contradict each other in {name}.",
            NOTHING_TRAINED_MESSAGE,
            "Export the rollouts again",
        )
    row_id, kind = str(row.get("row", name)), str(row.get("kind") or "react")
    return {"input_ids": ids, "weights": weights, "row": row_id, "kind": kind}


def _whole_numbers(values: Any, what: str) -> Any:
    """As int32. Raises HoustonError for others, and for those that are larger."""
    array = _numbers(values, what)
    with numpy.errstate(invalid="ignore"):
        cast = array.astype(numpy.int32)
    if not numpy.array_equal(cast, array):
        raise HoustonError(f"Not all {what} are whole numbers of 32 bits.", NOTHING_TRAINED_MESSAGE)
    return cast


def _numbers(values: Any, what: str) -> Any:
    """A list of numbers as an array. Raises HoustonError for anything else."""
    try:
        array = numpy.asarray(values)
    except (ValueError, OverflowError):  # lists of unlike lengths
        array = None
    if array is None or array.ndim != 1 or array.dtype.kind not in "biuf":
        raise HoustonError(f"The {what} are no list of numbers.", NOTHING_TRAINED_MESSAGE)
    return array


def _to_tensor(scalar: Any) -> torch.Tensor:
    return torch.from_numpy(scalar.values.to_numpy().copy())
