"""The page of an export (`README.md`): what was kept, what is masked and why, who judged, whose
words it contains, and which policies sampled it.

It is also the data set card of the Hugging Face hub; `datasets` reads the columns' types from it
when it reads the folder. All its content comes from the manifest, without folders of this machine
or addresses of its servers. It needs no library of the hub.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec

from houston_daemon.engines.hub_access import public_value
from houston_daemon.training.export.export_format import ExportColumnType, ExportFormat
from houston_daemon.training.export.export_manifest import (
    ExportedFile,
    ExportManifest,
    SamplingCount,
)
from houston_shared.secret_redaction import redact
from houston_shared.times_and_counts import join_first, pluralize

CARD_NAME = "README.md"
_FEATURE_TYPES: dict[ExportColumnType, str] = {
    "ids": "list: int32",
    "weights": "list: float32",
    "text": "dtype: string",
    "number": "dtype: int32",
    "real": "dtype: float64",
    "messages": "list: json",
}
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (10**6, "100K<n<1M"))
"""The hub's words for how many rows a data set has."""
_MAX_LISTED_TASKS = 20
"""Tasks that the page names; the manifest names all."""


def dataset_card(manifest: ExportManifest, format: ExportFormat) -> str:
    """The whole page."""
    rows = pluralize(manifest.rows, "row")
    sections = [
        _metadata(manifest, format),
        [f"# {manifest.format}: {rows} of {pluralize(len(manifest.sources), 'rollout')}"],
        [f"{format.description[0].upper()}{format.description[1:]}."],
        [_file_words(file, manifest.counts.unit) for file in manifest.files],
        [f"{source[0].upper()}{source[1:]}." for source in [ids_source_words(manifest)] if source],
        _provenance_words(manifest),
        [line for line in [elsewhere_sentence(manifest)] if line],
        _run(manifest),
        _kept_and_masked(manifest),
        _verdict_section(manifest),
        _people(manifest),
        _policies(manifest),
        _tasks(manifest),
        ["## What its consumer does silently"],
        _bullets(
            [*manifest.traps, *(f"{n} lines: {remark}." for remark, n in manifest.remarks.items())]
        ),
        ["`manifest.json` says where every row comes from and how it was made."],
    ]
    return redact("\n\n".join("\n".join(lines) for lines in sections if lines) + "\n")


def elsewhere_sentence(manifest: ExportManifest) -> str:
    """How many rollouts another program sampled; empty where none was."""
    count = sum(source.provenance == "elsewhere" and source.rows > 0 for source in manifest.sources)
    if not count:
        return ""
    were = "1 rollout was" if count == 1 else f"{count} rollouts were"
    return (
        f"{were} sampled elsewhere and imported: their rows are rendered, so their tokens are"
        " not the sampled ones, and have provenance elsewhere."
    )


def ids_source_words(manifest: ExportManifest) -> str:
    """Where ids come from, in words; empty for rows of messages."""
    says = {"ledger": "as they were sampled", "rendered": "rendered by their dialect"}
    parts = [f"{pluralize(count, 'row')} {says[of]}" for of, count in manifest.ids_from.items()]
    return f"ids of {' and '.join(parts)}" if parts else ""


def _metadata(manifest: ExportManifest, format: ExportFormat) -> list[str]:
    """The front matter that the hub and `datasets` read."""
    size = next((words for most, words in _SIZES if manifest.rows < most), "n>1M")
    lines = ["---", f'pretty_name: "Rows of agents for {manifest.format}"']
    lines += ["task_categories:", "- text-generation", "size_categories:", f"- {size}"]
    lines += ["tags:", "- houston", "- agent-trajectories", f"- {manifest.format}"]
    if format.card:
        lines += ["dataset_info:", "  features:"]
        for column in format.columns:
            lines += [f"  - name: {column.name}", f"    {_FEATURE_TYPES[column.type]}"]
    lines += ["configs:", "- config_name: default", "  data_files:"]
    for file, split in zip(manifest.files, ("train", "test"), strict=False):
        lines += [f"  - split: {split}", f"    path: {file.name}"]
    return [*lines, "---"]


def _file_words(file: ExportedFile, unit: str) -> str:
    what = f"{file.tokens:,} tokens, " if file.tokens is not None else ""
    longest = "tokens" if file.tokens is not None else "messages"
    return (
        f"- `{file.name}`: {file.rows} rows, {what}{file.trained:,} {unit} trained,"
        f" the longest has {file.longest:,} {longest}"
    )


def _provenance_words(manifest: ExportManifest) -> list[str]:
    if manifest.provenance != "none":
        return []
    return [
        "Provenance `none`: at least one rollout ran without a sandbox, so nobody can guarantee"
        " who wrote its files; its rows are marked."
    ]


def _run(manifest: ExportManifest) -> list[str]:
    """How rewards and advantages were made, for the rows of a run; nothing for others."""
    run = manifest.run
    if not run:
        return []
    groups = f"{pluralize(run['groups'], 'group')} of {pluralize(run['updates'], 'update')}"
    lines = [f"## Rewards of {run['run']}", "", f"Rows of {groups}; a group is one task, and each"]
    lines[-1] += " advantage compares a rollout with its group."
    lines += ["", *_bullets(f"left out: {count} {why}" for why, count in run["dropped"].items())]
    settings = ((key, msgspec.json.encode(value).decode()) for key, value in run["recipe"].items())
    return lines + _bullets(f"{key}: `{value}`" for key, value in settings)


def _kept_and_masked(manifest: ExportManifest) -> list[str]:
    """What is trained, and what is not, by why."""
    counts, left_out = manifest.counts, Counter(row.why for row in manifest.left_out)
    lines = ["## What was kept, what is masked and why", ""]
    lines += [f"Of {counts.sampled:,} sampled {counts.unit} {counts.trained:,} are trained."]
    if counts.unjudged:
        lines[-1] += f" Of these, {counts.unjudged:,} are of steps that nobody judged."
    if counts.untrained:
        lines += ["", f"| {counts.unit} not trained | why |", "|---|---|"]
        lines += [f"| {count:,} | {_cell(why)} |" for why, count in counts.untrained.items()]
    if left_out:
        lines += ["", f"{pluralize(len(manifest.left_out), 'row')} or steps are left out:", ""]
        lines += _bullets(f"{count:,}: {why}" for why, count in left_out.items())
    return lines


def _verdict_section(manifest: ExportManifest) -> list[str]:
    """Rules, judges and people behind the verdicts."""
    verdicts = manifest.verdicts
    lines = ["## Who judged the steps", "", verdicts.sentence, ""]
    lines += _bullets(f"the rule {name} masks {count:,}" for name, count in verdicts.rules.items())
    lines += _bullets(
        f"the judge {public_value(name)} judged {count:,}"
        for name, count in verdicts.judges.items()
    )
    return [*lines, f"- people judged {verdicts.people:,}"]


def _people(manifest: ExportManifest) -> list[str]:
    """Whose words the agents heard."""
    lines = ["## Whose words are in it", ""]
    if not manifest.people:
        return [*lines, "Nobody spoke to these agents."]
    total = pluralize(sum(manifest.people.values()), "message")
    lines += [f"The agents heard {total}, as `<real_user>…</real_user>` in observations:", ""]
    return lines + _bullets(
        f"{who}: {pluralize(count, 'message')}" for who, count in manifest.people.items()
    )


def _policies(manifest: ExportManifest) -> list[str]:
    """What sampled the rows: by tokens where the ids are there, else by rollouts."""
    lines = ["## Which policies sampled it", ""]
    if manifest.drawn:
        lines += ["| policy | engine | sampling | log-probabilities of | tokens |"]
        lines += ["|---|---|---|---|---|"]
        lines += [_drawn_row(count) for count in manifest.drawn]
    else:
        counted = Counter(p or "base" for source in manifest.sources for p in source.policies)
        lines += _bullets(
            f"{name}: {pluralize(count, 'rollout')}" for name, count in sorted(counted.items())
        )
    models = ", ".join(f"`{public_value(base)}`" for base in manifest.base)
    return [*lines, "", f"Base models: {models or 'unknown'}."]


def _drawn_row(count: SamplingCount) -> str:
    policy = count.policy or "base"
    if count.policy_hash:
        policy += f" `{count.policy_hash[:12]}`"
    sampling = msgspec.json.encode(count.sampling).decode()
    cells = (policy, count.engine, f"`{sampling}`", count.logprob_kind, f"{count.tokens:,}")
    return f"| {' | '.join(_cell(str(public_value(cell))) for cell in cells)} |"


def _tasks(manifest: ExportManifest) -> list[str]:
    lines = ["## Tasks", ""]
    for title, key in (("trained", "train"), ("held out", "held_out")):
        if names := manifest.split.get(key):
            lines.append(f"- {title}: {join_first(names, _MAX_LISTED_TASKS)}")
    return lines if len(lines) > 2 else []


def _bullets(texts: Iterable[str]) -> list[str]:
    return [f"- {text}" for text in texts]


def _cell(text: str) -> str:
    """Text that ends no cell of a table."""
    return text.replace("|", "/").replace("\n", " ")
