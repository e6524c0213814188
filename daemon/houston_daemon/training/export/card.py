"""The page of an export: what its files are, for people, and their columns for `datasets`.

`load_dataset(DIR)` takes the features from it, so that no call's arguments are guessed from the
first lines of a file.
"""

from houston_daemon.training.export.format import ColumnType, Format
from houston_daemon.training.export.manifest import File, Manifest
from houston_shared.plural import many

NAME = "README.md"
_TYPES: dict[ColumnType, str] = {
    "ids": "list: int32",
    "weights": "list: float32",
    "text": "dtype: string",
    "number": "dtype: int32",
    "messages": "list: json",
}


def page(manifest: Manifest, format: Format) -> str:
    """The whole page."""
    lines = _header(manifest, format) if format.card else []
    lines += [f"# {manifest.format}: {manifest.rows} rows of {len(manifest.sources)} rollouts", ""]
    lines += [f"{format.says[0].upper()}{format.says[1:]}.", ""]
    lines += [_file(one, manifest.counts.unit) for one in manifest.files]
    if told := ids_from(manifest):
        lines += ["", f"{told[0].upper()}{told[1:]}."]
    if manifest.provenance == "none":
        lines += [
            "",
            "Provenance `none`: at least one rollout ran without a sandbox, so that nobody can"
            " promise who wrote its files; its rows say so.",
        ]
    lines += ["", "What its consumer does without a word:", ""]
    lines += [f"- {trap}" for trap in manifest.traps]
    lines += [f"- {count} lines: {remark}." for remark, count in manifest.remarks.items()]
    lines += ["", "`manifest.json` says where every row comes from and how it was made.", ""]
    return "\n".join(lines)


def ids_from(manifest: Manifest) -> str:
    """Where ids come from, in words; empty for rows of messages."""
    says = {"ledger": "as they were sampled", "rendered": "rendered by their dialect"}
    parts = [f"{many(count, 'row')} {says[of]}" for of, count in manifest.ids_from.items()]
    return f"ids of {' and '.join(parts)}" if parts else ""


def _file(one: File, unit: str) -> str:
    what = f"{one.tokens:,} tokens, " if one.tokens is not None else ""
    longest = "tokens" if one.tokens is not None else "messages"
    return (
        f"- `{one.name}`: {one.rows} rows, {what}{one.trained:,} {unit} trained,"
        f" the longest has {one.longest:,} {longest}"
    )


def _header(manifest: Manifest, format: Format) -> list[str]:
    lines = ["---", "dataset_info:", "  features:"]
    for column in format.columns:
        lines += [f"  - name: {column.name}", f"    {_TYPES[column.type]}"]
    lines += ["configs:", "- config_name: default", "  data_files:"]
    for one, split in zip(manifest.files, ("train", "test"), strict=False):
        lines += [f"  - split: {split}", f"    path: {one.name}"]
    return [*lines, "---", ""]
