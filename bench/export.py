"""What exporting costs: rows/s and tokens/s of every format, and the limit of its writer.

The same rows in the same run: `raw` writes the very lines that the format made, with msgspec as
JSON or with pyarrow as parquet, and does nothing else; what lies between is making lines, looking
for secrets, validating, counting and hashing. Rows are made beforehand: what building them out of a
journal costs is `bench/rows.py`'s. Seconds are those of the processor, so that a crowded machine
does not count.

    python bench/export.py [--rows 40] [--tokens 16000] [--steps 60] [--repeat 3]
"""

import argparse
import json
import os
import platform
import random
import statistics
import tempfile
import time
from array import array
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
from tokenizers import Tokenizer

from houston_daemon.engines import local_model
from houston_daemon.training.export.export_files import DataFile
from houston_daemon.training.export.export_format import ExportFormat, ExportLine
from houston_daemon.training.export.export_line_builder import LineBuilder
from houston_daemon.training.export.export_run import FORMATS
from houston_daemon.training.rows.training_row import ChatMessage, ChatRow, SampledSpan, TokenRow
from houston_shared.records import Message, ToolCall

TOOL = {"type": "function", "function": {"name": "run_command", "parameters": {"type": "object"}}}


def ids_row(number: int, tokenizer: Tokenizer, path: str, tokens: int, steps: int) -> TokenRow:
    """Words as ids: of each step a quarter is sampled, every fifth step is masked."""
    chance = random.Random(number)
    words = ["the", "loss", "of", "run", "falls", "to", "0.31", "文", "train.py", "\n", "error:"]
    text = " ".join(chance.choices(words, k=tokens))
    ids = array("i", tokenizer.encode(text).ids[:tokens])
    size = len(ids) // (steps + 1)
    spans = tuple(
        SampledSpan(
            start=size * n, end=size * n + size // 4, step=n, attempt=1, role="policy",
            sample_seq=n, policy="policy@1", policy_hash="", weight=float(n % 5 > 0),
            why="" if n % 5 else "mask: rule error_observation@1: it failed",
            logprob_kind="policy", sampling={"temperature": 1.0}, guided=False,
        )
        for n in range(1, steps + 1)
    )  # fmt: skip
    logprobs = {
        n: array("f", [-chance.random() for _ in range(one.end - one.start)])
        for n, one in enumerate(spans)
    }
    return TokenRow(
        id=f"r-{number}/0.0", kind="react", rollout=f"r-{number}", task="bench", group="",
        domain="", context=0, source="ledger", provenance="sandbox", token_ids=ids, spans=spans,
        logprobs=logprobs, dialect="chatml-json", tokenizer=path,
    )  # fmt: skip


def chat_row(row: TokenRow, tokenizer: Tokenizer) -> ChatRow:
    """The same texts as messages."""
    messages = [
        ChatMessage(Message(role=role, content="You are an agent."), None, 0.0, "")
        for role in ("system", "user")
    ]
    for before, span in zip((None, *row.spans), row.spans, strict=False):
        said = tokenizer.decode(row.token_ids[span.start : span.end].tolist())
        end = row.spans[span.step].start if span.step < len(row.spans) else len(row.token_ids)
        back = tokenizer.decode(row.token_ids[span.end : end].tolist())
        call = ToolCall(id=f"{span.step}.0", name="run_command", arguments={"command": said[-80:]})
        answer = Message(role="assistant", content=said, calls=(call,))
        messages.append(ChatMessage(answer, span.step, span.weight, span.why))
        result = Message(role="tool", content=back, call_id=call.id)
        messages.append(ChatMessage(result, span.step, 0.0, ""))
        assert before is None or before.step + 1 == span.step
    return ChatRow(
        id=row.id, kind=row.kind, rollout=row.rollout, task=row.task, group="", domain="",
        context=0, provenance=row.provenance, messages=tuple(messages), tools=(TOOL,),
    )  # fmt: skip


def seconds(act: Callable[[], object], repeat: int) -> float:
    """Median processor time."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        act()
        times.append(time.process_time() - start)
    return statistics.median(times)


def exported(
    format: ExportFormat, rows: Sequence[TokenRow | ChatRow], folder: Path, parquet: bool
) -> int:
    """Write the rows as an export does; bytes."""
    building = LineBuilder(format)
    file = DataFile(folder, "data", format, parquet)
    for row in rows:
        for built in building.lines(row):
            file.write(built)
    assert not building.refused, building.refused[:1]
    return file.close().bytes


def raw_lines(lines: Sequence[ExportLine], file: Path) -> None:
    """The same lines as JSON, written and synced."""
    with file.open("wb") as out:
        for line in lines:
            out.write(msgspec.json.encode(line))
            out.write(b"\n")
        out.flush()
        os.fsync(out.fileno())


def raw_table(lines: Sequence[ExportLine], file: Path) -> None:
    """The same lines by pyarrow: lists of ids as it finds them, messages as JSON texts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {name: [line[name] for line in lines] for name in lines[0]}
    for name in ("prompt", "completion"):
        if name in columns:
            columns[name] = [
                [msgspec.json.encode(one).decode() for one in value] for value in columns[name]
            ]
    types = {"input_ids": pa.int32(), "labels": pa.int32(), "weights": pa.float32()}
    arrays = {
        name: pa.array(value, pa.list_(types[name]) if name in types else None)
        for name, value in columns.items()
    }
    pq.write_table(pa.table(arrays), file, compression="zstd")
    with file.open("rb") as out:
        os.fsync(out.fileno())


def measured(
    name: str, rows: Sequence[TokenRow | ChatRow], tokens: int, parquet: bool, repeat: int
) -> dict[str, Any]:
    """One format, against its limit."""
    format = FORMATS[name]
    lines = [line for row in rows for line in format.lines(row)]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        size = exported(format, rows, folder, parquet)
        taken = seconds(lambda: exported(format, rows, folder, parquet), repeat)
        if parquet:
            limit = seconds(lambda: raw_table(lines, folder / "raw"), repeat)
        else:
            limit = seconds(lambda: raw_lines(lines, folder / "raw"), repeat)
    return {
        "format": name + (" parquet" if parquet else ""),
        "lines": len(lines),
        "megabytes": round(size / 1e6, 1),
        "seconds": round(taken, 3),
        "rows_per_second": round(len(rows) / taken, 1),
        "tokens_per_second": round(tokens / taken),
        "megabytes_per_second": round(size / 1e6 / taken, 1),
        "raw_seconds": round(limit, 3),
        "ratio_to_raw": round(limit / taken, 2),
    }


def main() -> None:
    """Measure, print, keep as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=16_000)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--repeat", type=int, default=3)
    asked = parser.parse_args()
    folder = local_model.model_path()
    assert folder, "houston doctor --fetch-model"
    path = str(folder / "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    ids = [ids_row(n, tokenizer, path, asked.tokens, asked.steps) for n in range(asked.rows)]
    chats = [chat_row(row, tokenizer) for row in ids]
    tokens = sum(len(row.token_ids) for row in ids)
    runs = [
        measured(name, ids if format.unit == "ids" else chats, tokens, parquet, asked.repeat)
        for name, format in FORMATS.items()
        if not format.credited  # rows of a run need one
        for parquet in (False, True)
        if not (parquet and format.only_lines) and not (parquet and name == "raw")
    ]
    report = {
        "bench": "export",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("msgspec", "pyarrow", "tokenizers")},
        },
        "rows": asked.rows,
        "tokens_a_row": asked.tokens,
        "steps_a_row": asked.steps,
        "runs": runs,
    }
    Path(__file__).parent.joinpath("results", "export.json").write_text(
        json.dumps(report, indent=1) + "\n"
    )
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
