"""The page of a policy on the hub, and the lineage file that is pushed with its weights.

Both are made from the registry and the run's folder: base with revision, recipe, rows, figures,
Houston's version. They contain no path of this machine and no person's name. Nothing is sent here.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.engines.hub_access import hub_library, public_value
from houston_daemon.training.export.export_manifest import judged_by_sentence
from houston_daemon.training.policies.policy_files import NamedPolicy
from houston_shared.home import Home
from houston_shared.policy_and_run_files import is_run_name, parse_version_note, training_folder
from houston_shared.secret_redaction import redact, redact_all
from houston_shared.times_and_counts import pluralize

_LINEAGE_KEYS = (
    "name", "kind", "base", "base_hash", "base_origin", "parent", "run", "manifest", "recipe",
    "metrics", "rank", "note", "version", "origin",
)  # fmt: skip
"""What of a registration others may read: not who asked for it, nor from which process."""


def public_lineage(source: NamedPolicy, files: Mapping[str, str], kind: str) -> dict[str, Any]:
    """`lineage.json` as it is pushed. files: SHA-256 by name. kind: of what is pushed."""
    lineage = {key: source.lineage[key] for key in _LINEAGE_KEYS if source.lineage.get(key)}
    if kind == "full":
        lineage.pop("rank", None)
    return {**redact_all(public_value(lineage)), "kind": kind, "files": dict(files)}


def encode_lineage(lineage: Mapping[str, Any]) -> bytes:
    """As it lies in a folder."""
    return msgspec.json.format(msgspec.json.encode(lineage), indent=1) + b"\n"


def policy_card(home: Home, lineage: Mapping[str, Any]) -> str:
    """`README.md`, with the metadata that the hub reads. lineage: the public one."""
    parts = [
        f"---\n{_metadata(lineage)}\n---\n",
        f"# {lineage['name']}\n",
        f"{_opening_sentence(lineage)}\n",
        _table("|  |  |", _origin_facts(lineage)),
        _data_section(home, lineage),
        _section("Recipe", lineage.get("recipe") or _recipe_of_update(home, lineage)),
        _section("Figures", lineage.get("metrics") or {}),
        _files_section(lineage["files"]),
    ]
    return redact("\n".join(part for part in parts if part))


def _metadata(lineage: Mapping[str, Any]) -> str:
    """The front matter, in the form of the hub's own library."""
    lora = lineage["kind"] == "lora"
    fields: dict[str, Any] = {
        "library_name": "peft" if lora else "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["houston", *(["lora"] if lora else [])],
    }
    if origin := lineage.get("base_origin"):
        fields["base_model"] = origin.partition("@")[0]
        fields["base_model_relation"] = "adapter" if lora else "finetune"
    return str(hub_library().ModelCardData(**fields).to_yaml())


def _opening_sentence(lineage: Mapping[str, Any]) -> str:
    rank = f" of rank {lineage['rank']}" if lineage.get("rank") else ""
    what = f"A LoRA adapter{rank}" if lineage["kind"] == "lora" else "A model"
    how = "trained" if lineage.get("run") or lineage.get("recipe") else "registered"
    version = lineage.get("version") or "of unknown version"
    return f"{what}, {how} with Houston {version} from `{_base_words(lineage)}`."


def _base_words(lineage: Mapping[str, Any]) -> str:
    return str(lineage.get("base_origin") or lineage.get("base") or "a base that was erased")


def _origin_facts(lineage: Mapping[str, Any]) -> dict[str, str]:
    base_hash = lineage.get("base_hash") or ""
    facts = {
        "base model": f"`{_base_words(lineage)}`" + (f", content `{base_hash}`" * bool(base_hash)),
        "parent": lineage.get("parent", ""),
        "training run": lineage.get("run", ""),
        "data": f"manifest `{lineage['manifest']}`" if lineage.get("manifest") else "",
        "note": lineage.get("note", ""),
        "pulled from": lineage.get("origin", ""),
    }
    return {title: text for title, text in facts.items() if text}


def _data_section(home: Home, lineage: Mapping[str, Any]) -> str:
    """Rows that it was trained on, where the manifest of them is still here."""
    manifest = _data_manifest(home, lineage)
    if not manifest:
        return ""
    counts, sources = manifest.get("counts") or {}, manifest.get("sources") or []
    unit = counts.get("unit", "tokens")
    lines = [
        f"{pluralize(manifest.get('rows', 0), 'row')} of {pluralize(len(sources), 'rollout')};"
        f" {counts.get('trained', 0):,} of {counts.get('sampled', 0):,} sampled {unit} are trained."
    ]
    lines += [f"{judged_by_sentence(manifest)}", ""]
    lines += [
        f"- not trained: {count:,} {unit}, {why}"
        for why, count in (counts.get("untrained") or {}).items()
    ]
    return "## Rows\n\n" + "\n".join(lines) + "\n"


def _data_manifest(home: Home, lineage: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest whose hash the lineage has; empty where it is gone or another."""
    run = str(lineage.get("run") or "")
    for place in ("manifest.json", "data/manifest.json"):
        file = training_folder(home) / run / place
        if is_run_name(run) and file.is_file():
            raw = file.read_bytes()
            if hashlib.sha256(raw).hexdigest() == lineage.get("manifest"):
                return dict(msgspec.json.decode(raw))
    return {}


def _recipe_of_update(home: Home, lineage: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe of the run of reinforcement learning that a version's note names."""
    version = parse_version_note(str(lineage.get("note") or ""))
    if version is None:
        return {}
    file = training_folder(home) / version.run / "recipe.json"
    if not file.is_file():
        return {}
    recipe = msgspec.json.decode(file.read_bytes()).get("recipe") or {}
    return dict(redact_all(public_value(recipe)))


def _section(title: str, values: Mapping[str, Any]) -> str:
    facts = {key: f"`{text}`" for key, text in _flat_values(values)}
    return f"## {title}\n\n{_table('| key | value |', facts)}" if facts else ""


def _flat_values(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Settings with their whole keys, without those left empty."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat_values(value, f"{before}{key}.")
        elif value not in (None, "", [], ()):
            text = f"{value:.6g}" if isinstance(value, float) else msgspec.json.encode(value)
            value_text = text if isinstance(text, str) else text.decode().strip('"')
            yield f"{before}{key}", value_text.replace("`", "'").replace("\n", " ")[:200]


def _files_section(files: Mapping[str, str]) -> str:
    return "## Files\n\n" + _table("| file | SHA-256 |", {k: f"`{v}`" for k, v in files.items()})


def _table(header: str, rows: Mapping[str, str]) -> str:
    lines = [header, "|---|---|"]
    lines += [f"| {key} | {str(text).replace('|', '/')} |" for key, text in rows.items()]
    return "\n".join(lines) + "\n"


def hash_content(content: Path | bytes) -> str:
    """SHA-256 (hex) of a file or of bytes. Raises OSError."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
