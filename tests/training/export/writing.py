"""A folder as an export leaves it, from rows alone: no home, no rollout."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from houston_daemon.training.export.dataset_card import CARD_NAME, dataset_card
from houston_daemon.training.export.export_files import UNFINISHED, DataFile
from houston_daemon.training.export.export_line_builder import LineBuilder
from houston_daemon.training.export.export_manifest import ExportManifest, JudgedBy
from houston_daemon.training.export.export_run import FORMATS
from houston_daemon.training.rows.training_row import ChatRow, TokenRow

ROW_FORMATS = {name: format for name, format in FORMATS.items() if not format.credited}
"""Formats of rows without credit; `test_run_rows` has the others."""


def written(
    format: str, rows: Sequence[TokenRow | ChatRow], folder: Path, parquet: bool = False
) -> tuple[Path, LineBuilder]:
    """The data file of some rows, with the card beside it; and what was kept aside.

    Rows go in as they are: secrets are not looked for, since synthetic ids have no tokenizer.
    """
    folder.mkdir(parents=True, exist_ok=True)
    building = LineBuilder(FORMATS[format])
    building._clean = (  # type: ignore[method-assign]
        lambda row: building._without_wrong_answers(row) if isinstance(row, ChatRow) else row
    )
    file = DataFile(folder, "data", FORMATS[format], parquet)
    for row in rows:
        for built in building.lines(row):
            file.write(built)
    exported = file.close()
    support = FORMATS[format].support_files([(file.name, exported.sha256)])
    for path, content in support.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(content)
    for name in filter(None, (file.name, file.index)):
        (folder / (name + UNFINISHED)).replace(folder / name)
    manifest = ExportManifest(
        version=1, format=format, rows=exported.rows, content_hash=exported.sha256, inputs="",
        files=[exported], counts=building.counts(), sources=[], provenance="sandbox",
        verdicts=JudgedBy({}, {}, 0, {}), options={}, recipe={}, split={}, tokenizers={},
        dialects=[], base=[], left_out=[], remarks={}, traps=[], versions={},
    )  # fmt: skip
    (folder / CARD_NAME).write_text(dataset_card(manifest, FORMATS[format]))
    return folder / file.name, building


def lines(file: Path) -> list[dict[str, object]]:
    """JSON Lines, read by another reader than the one that wrote them."""
    import json

    return [json.loads(line) for line in file.read_bytes().splitlines()]


def encoded(value: object) -> bytes:
    return msgspec.json.encode(value)
