"""Lines as parquet row groups or an Arrow stream, with what `datasets` needs to read free JSON back
as it was.

A struct column would join the arguments of all calls into one record with every name in each; so
messages are JSON values (Arrow's `json` extension, the feature `Json` of datasets). The only
module of exports that imports pyarrow.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from houston_daemon.training.export.export_format import ExportColumn, ExportColumnType
from houston_daemon.training.export.export_line_builder import BuiltLine
from houston_shared import atomic_file

_SPAN_TYPE = pa.struct(
    [
        ("start", pa.int32()),
        ("end", pa.int32()),
        ("step", pa.int32()),
        ("attempt", pa.int32()),
        ("role", pa.string()),
        ("sample_seq", pa.int64()),
        ("policy", pa.string()),
        ("policy_hash", pa.string()),
        ("weight", pa.float32()),
        ("why", pa.string()),
        ("logprob_kind", pa.string()),
        ("sampling", pa.string()),  # JSON: other parameters in every span
        ("guided", pa.bool_()),
        ("by", pa.string()),
        ("engine", pa.string()),
        ("corrected", pa.int32()),
        ("logprobs", pa.list_(pa.float32())),
    ]
)
_ARROW_TYPES: dict[ExportColumnType, Any] = {
    "ids": pa.list_(pa.int32()),
    "weights": pa.list_(pa.float32()),
    "text": pa.string(),
    "number": pa.int32(),
    "real": pa.float64(),
    "messages": pa.list_(pa.json_()),
    "spans": pa.list_(_SPAN_TYPE),
}
_DATASETS_FEATURES: dict[ExportColumnType, Any] = {
    "ids": {"feature": {"dtype": "int32", "_type": "Value"}, "_type": "List"},
    "weights": {"feature": {"dtype": "float32", "_type": "Value"}, "_type": "List"},
    "text": {"dtype": "string", "_type": "Value"},
    "number": {"dtype": "int32", "_type": "Value"},
    "real": {"dtype": "float64", "_type": "Value"},
    "messages": {"feature": {"_type": "Json"}, "_type": "List"},
}


GROUP_BYTES = 8_000_000
"""About as much JSON makes one row group."""


class TableFile:
    """A file of record batches that only its owner reads: parquet (compressed with zstd), or an
    Arrow stream where its name ends so."""

    def __init__(self, path: Path, columns: Sequence[ExportColumn], *, stream: bool) -> None:
        self._path = path
        self._columns = columns
        self._lines: list[BuiltLine] = []
        self._bytes = 0
        self._schema = _schema(columns, with_features=not stream)
        if stream:
            self._writer = pa.ipc.new_stream(pa.OSFile(str(path), "wb"), self._schema)
        else:
            self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")
        path.chmod(0o600)

    def write(self, built: BuiltLine) -> None:
        """Append one line."""
        self._lines.append(built)
        self._bytes += len(built.raw)
        if self._bytes >= GROUP_BYTES:
            self._write_group()

    def close(self) -> None:
        """Write out and sync."""
        self._write_group()
        self._writer.close()
        atomic_file.sync_to_disk(self._path)

    def _write_group(self) -> None:
        if self._lines:
            arrays = [
                _column_array([built.line[column.name] for built in self._lines], column.type)
                for column in self._columns
            ]
            self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self._lines, self._bytes = [], 0


def _schema(columns: Sequence[ExportColumn], *, with_features: bool) -> Any:
    """with_features: name the types of `datasets`, where it has all of them. A stream has only
    types that every version of it infers alike."""
    schema = pa.schema([(column.name, _ARROW_TYPES[column.type]) for column in columns])
    if with_features and all(column.type in _DATASETS_FEATURES for column in columns):
        features = {column.name: _DATASETS_FEATURES[column.type] for column in columns}
        schema = schema.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    return schema


def _column_array(values: list[Any], type: ExportColumnType) -> Any:
    if type == "messages":
        texts = [[msgspec.json.encode(message).decode() for message in value] for value in values]
        storage = pa.array(texts, pa.list_(pa.string()))
        return storage.cast(_ARROW_TYPES[type])
    if type == "spans":
        values = [[_span_record(span) for span in value] for value in values]
    return pa.array(values, _ARROW_TYPES[type])


def _span_record(span: dict[str, Any]) -> dict[str, Any]:
    return {**span, "sampling": msgspec.json.encode(span["sampling"]).decode()}
