"""Pushes policies to the hub with a card of their lineage, and pulls them with their checksums.

Before a push, the policy is verified against the registry, and folders of this machine are left
out; afterwards the files on the hub are checked once more. A pulled policy is registered as an
import that records its origin. Files, hashes and numbers of policies are handled by the modules
next to this one.
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from houston_daemon.engines.hub_access import (
    push_commit,
    require_hub_id,
    require_no_secrets,
    require_repository,
)
from houston_daemon.engines.hub_downloads import (
    HubSnapshot,
    Note,
    fetch_snapshot,
    find_model,
    verify_snapshot,
)
from houston_daemon.engines.local_model import model_path
from houston_daemon.training.policies import adapter_merge, policy_card, policy_files
from houston_daemon.training.policies.policy_files import (
    ADAPTER_FILES,
    FULL_MODEL_FILES,
    LINEAGE_FILE,
    TOKENIZER_FILES,
    NamedPolicy,
)
from houston_daemon.training.policies.policy_registration import (
    RegistrationResult,
    register_policy,
)
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.hub_models import HubId, local_path, parse_hub_id
from houston_shared.store import policy_queries
from houston_shared.store.store_reader import Reader

NOTHING_PUSHED = "Nothing was pushed."
NOTHING_REGISTERED = "No policy was registered."


class PushedPolicy(NamedTuple):
    """What lies on the hub now."""

    policy: str
    origin: str
    """`org/name@COMMIT`."""
    kind: str
    """`lora` or `full`."""
    files: tuple[str, ...]


def push_policy(home: Home, name: str, repo: str, *, merged: bool, private: bool) -> PushedPolicy:
    """Commit a policy's weights to `org/name`, with its card and lineage.

    merged: base and adapter as one model. private: whether the repository must be. Raises
    HoustonError: for a policy whose files are not what was registered, a text with a secret, and
    what the hub refuses.
    """
    repo = require_repository(repo, NOTHING_PUSHED)
    source = policy_files.trained_policy(home, name)
    with tempfile.TemporaryDirectory(prefix="houston-push-") as scratch:
        kind = "full" if merged else source.policy.kind
        files = _weights(source, Path(scratch) / "merged" if merged else None)
        hashes = {file: policy_card.hash_content(content) for file, content in files.items()}
        lineage = policy_card.public_lineage(source, hashes, kind)
        files[LINEAGE_FILE] = policy_card.encode_lineage(lineage)
        files["README.md"] = policy_card.policy_card(home, lineage).encode()
        require_no_secrets(files, NOTHING_PUSHED)
        ours = (*ADAPTER_FILES, *FULL_MODEL_FILES, *TOKENIZER_FILES)
        origin = push_commit(
            repo, "model", files, f"{name}, by Houston", private=private, replaces=ours
        )
    return PushedPolicy(name, origin, kind, tuple(sorted(files)))


def _weights(source: NamedPolicy, merge_into: Path | None) -> dict[str, Path | bytes]:
    """The files of a policy as they are pushed, by name."""
    if merge_into is not None and source.policy.kind == "lora":
        model = adapter_merge.load_merged(source.policy.kind, source.folder, source.base)
        written = adapter_merge.write_merged(model, source.base, merge_into, source.lineage)
        ours = (LINEAGE_FILE, adapter_merge.MERGED_MARKER)
        return {file.name: file for file in written if file.name not in ours}
    if source.policy.kind == "lora":
        config, weights = (source.folder / name for name in ADAPTER_FILES)
        return {config.name: _public_adapter_config(config, source), weights.name: weights}
    names = source.lineage.get("files") or [file.name for file in source.folder.iterdir()]
    return {name: source.folder / name for name in names if name != LINEAGE_FILE}


def _public_adapter_config(file: Path, source: NamedPolicy) -> bytes:
    """PEFT's settings with the base as others find it: on the hub at its commit, or by name."""
    config: dict[str, Any] = json.loads(file.read_bytes())
    repo, _, commit = str(source.lineage.get("base_origin") or "").partition("@")
    config["base_model_name_or_path"] = repo or source.base.name
    config["revision"] = commit or None
    return json.dumps(config, indent=2, sort_keys=True).encode() + b"\n"


def pull_policy(
    loaded: LoadedConfiguration,
    text: str,
    *,
    base: str,
    name: str,
    parent: str,
    note: str,
    tell: Note,
) -> tuple[RegistrationResult, HubId]:
    """Fetch an adapter or model and register it as an imported policy; also where it came from.

    text: `org/name` or `org/name@revision`. base: the model that it was trained from, a folder or
    an id; empty for what the repository says. tell: told what takes long. Needs the daemon. Raises
    HoustonError; then nothing is registered.
    """
    hub_id = require_hub_id(text, NOTHING_REGISTERED)
    snapshot = fetch_snapshot(hub_id, "policy", None, tell, NOTHING_REGISTERED)
    verify_snapshot(snapshot, NOTHING_REGISTERED)
    lineage = _read_object(snapshot.folder / LINEAGE_FILE)
    _check_lineage_hashes(snapshot, lineage)
    base_folder = _find_base(loaded.home, snapshot, lineage, base, tell)
    default_note = f"{lineage['name']} there" if lineage.get("name") else ""
    result = register_policy(
        loaded,
        snapshot.folder,
        base_folder,
        name=name,
        parent=parent,
        note=note or default_note,
        origin=str(snapshot.id),
    )
    return result, snapshot.id


def _read_object(file: Path) -> dict[str, Any]:
    """A JSON object of somebody else's; empty where there is none. Raises HoustonError."""
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as problem:
        raise HoustonError(f"{file} is no JSON: {problem}.", NOTHING_REGISTERED) from problem
    return value if isinstance(value, dict) else {}


def _check_lineage_hashes(snapshot: HubSnapshot, lineage: Mapping[str, Any]) -> None:
    """Raise HoustonError where the repository's lineage names other content than lies there."""
    files = lineage.get("files")
    for name, digest in files.items() if isinstance(files, dict) else ():
        file = snapshot.folder / Path(str(name)).name
        if file.is_file() and policy_card.hash_content(file) != digest:
            raise HoustonError(
                f"{name} of {snapshot.id} is not the file that its lineage names.",
                NOTHING_REGISTERED,
                "Ask who pushed it, or name another revision",
            )


def _find_base(
    home: Home, snapshot: HubSnapshot, lineage: Mapping[str, Any], named: str, tell: Note
) -> Path:
    """The folder of the model that it was trained from. Raises HoustonError."""
    base_hash = str(lineage.get("base_hash") or "")
    if named:
        folder = find_model(named, "model", home, tell, NOTHING_REGISTERED)
        if base_hash and policy_files.model_hash(folder, home) != base_hash:
            tell(
                f"warning: {snapshot.id} says that it was trained from another content"
                f" than {folder}"
            )
        return folder
    if base_hash and (base_folder := _known_base(home, base_hash)):
        return base_folder
    if origin := _base_on_hub(snapshot, lineage):
        tell(f"{snapshot.id} says that it was trained from {origin}")
        return fetch_snapshot(origin, "model", home, tell, NOTHING_REGISTERED).folder
    says = f"it names {lineage['base']!r}" if lineage.get("base") else "it does not say"
    raise HoustonError(
        f"What {snapshot.id} was trained from is not known here: {says}.",
        NOTHING_REGISTERED,
        "Name the model, a folder or org/name@revision: --base",
    )


def _base_on_hub(snapshot: HubSnapshot, lineage: Mapping[str, Any]) -> HubId | None:
    """What the lineage, or PEFT's own file, names as a model of the hub."""
    if id := parse_hub_id(str(lineage.get("base_origin") or "")):
        return id
    config = _read_object(snapshot.folder / ADAPTER_FILES[0])
    text = str(config.get("base_model_name_or_path") or "")
    if local_path(text):
        return None  # a folder that happens to be here
    id = parse_hub_id(text)
    revision = str(config.get("revision") or "")
    return id.at(revision) if id and revision else id


def _known_base(home: Home, base_hash: str) -> Path | None:
    """A model of this machine with that content: a base of the home's policies, or the packaged
    one."""
    with Reader(home) as reader:
        rows = reader.run(policy_queries.list_policies())
    candidates = [Path(row.base) for row in rows if row.base_hash == base_hash]
    if packaged := model_path():
        candidates.append(packaged)
    folders = (folder for folder in dict.fromkeys(candidates) if folder.is_dir())
    return next((f for f in folders if policy_files.model_hash(f, home) == base_hash), None)
