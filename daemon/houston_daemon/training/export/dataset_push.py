"""Pushes an export to the Hugging Face hub as a data set: the files of its folder, with their card.

Before anything leaves, the data files are compared with their manifest, and every text is searched
for secrets once more; afterwards the hub's checksums are compared. The manifest is pushed without
folders and addresses of this machine. The modules that write the files decide what is in them.
"""

from pathlib import Path

import msgspec

from houston_daemon.engines.hub_access import public_value, push_commit, require_no_secrets
from houston_daemon.training.export import export_manifest
from houston_daemon.training.export.dataset_card import CARD_NAME, dataset_card
from houston_daemon.training.export.export_files import EXPORT_FILE_NAMES, SUPPORT_FILE_NAMES
from houston_daemon.training.export.export_run import FORMATS, ExportResult
from houston_daemon.training.policies.policy_files import hash_file
from houston_shared.errors import HoustonError


def push_dataset(result: ExportResult, repo: str, *, private: bool) -> str:
    """Commit an export to the data set `org/name`; returns `org/name@COMMIT`.

    private: whether the data set must be. Raises HoustonError; the export is then where it is.
    """
    manifest, folder = result.manifest, result.folder
    effect = f"Nothing was pushed; the export is in {folder}."
    format = FORMATS[manifest.format]
    for data in manifest.files:
        _require_unchanged(folder / data.name, data.sha256, effect)
    names = [data.name for data in manifest.files]
    if format.index:
        names += [f"{name.partition('.')[0]}.rows.jsonl" for name in names]
    names += format.support_files([(data.name, data.sha256) for data in manifest.files])
    files: dict[str, Path | bytes] = {name: folder / name for name in names}
    public = msgspec.convert(
        public_value(msgspec.to_builtins(manifest)), export_manifest.ExportManifest
    )
    files[export_manifest.MANIFEST_NAME] = export_manifest.encode_manifest(public)
    files[CARD_NAME] = dataset_card(manifest, format).encode()
    require_no_secrets(files, effect)
    message = f"{manifest.format}: {manifest.rows} rows of {len(manifest.sources)} rollouts"
    return push_commit(
        repo,
        "dataset",
        files,
        message,
        private=private,
        replaces=(*EXPORT_FILE_NAMES, *SUPPORT_FILE_NAMES),
    )


def _require_unchanged(file: Path, sha256: str, effect: str) -> None:
    try:
        changed = hash_file(file) != sha256
    except OSError as problem:
        raise HoustonError(f"{file} cannot be read: {problem.strerror}.", effect) from problem
    if changed:
        raise HoustonError(
            f"{file} is not the file in the manifest.", effect, "Export it again: --force"
        )
