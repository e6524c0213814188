"""Models, tokenizers and adapters of the hub in the hub's own cache, at the commit that the home
recorded for them.

Commands fetch; the daemon never does, so that nothing in it waits for gigabytes. Files that are
there are not requested again, and a commit that is there needs no network at all. Of a model, only
what engines and trainers read is fetched: one set of weights, config, tokenizer.
"""

import re
from collections.abc import Callable, Collection
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from houston_daemon.engines.hub_access import (
    HubListing,
    HubUnreachable,
    hub_errors,
    hub_library,
    list_repository,
    require_hub_id,
)
from houston_daemon.engines.local_machine import exclusive_lock
from houston_shared import atomic_file, hub_models
from houston_shared.config import LoadedConfiguration
from houston_shared.engine_settings import EngineSettings
from houston_shared.errors import ConfigurationError, HoustonError, unwritable_as_error
from houston_shared.home import Home
from houston_shared.hub_models import HubId, HubPin, parse_hub_id

HubContent = Literal["model", "tokenizer", "policy"]
"""What is wanted of a repository: a whole model, what its ids mean, or an adapter or model with
what its repository says of it."""
Note = Callable[[str], None]
"""Told in a line what takes long, or what is not as one may think."""

_TOKENIZER_PATTERNS = (
    "config.json", "generation_config.json", "tokenizer*.json", "tokenizer.model", "vocab.json",
    "merges.txt", "special_tokens_map.json", "added_tokens.json", "chat_template*",
)  # fmt: skip
_TEXT_PATTERNS = ("LICENSE*", "NOTICE*")
_ADAPTER_PATTERNS = ("adapter_config.json", "adapter_model.safetensors")
_ABOUT_PATTERNS = ("README.md", "lineage.json")
_DECISIVE_FILES: dict[HubContent, tuple[str, ...]] = {
    "model": ("config.json",),
    "tokenizer": ("tokenizer.json",),
    "policy": ("adapter_config.json", "config.json"),
}
"""One of them is there wherever the content is."""


class HubSnapshot(NamedTuple):
    """What was fetched."""

    id: HubId
    """At its commit."""
    folder: Path
    listing: HubListing | None
    """What the hub said that lies there; None where it was not asked."""


def fetched_engine(loaded: LoadedConfiguration, name: str, note: Note) -> EngineSettings:
    """The engine called `name` with its model and tokenizer on this machine; hub ids that it names
    are fetched. Raises HoustonError; files that are there stay."""
    settings = loaded.engine(name)
    configured = loaded.config.engines.get(name)
    if configured is None:
        return settings
    missing = hub_models.hub_keys(settings)
    for key, id in hub_models.hub_keys(configured).items():
        if key in missing:
            content: HubContent = "model" if key == "model" else "tokenizer"
            fetch_snapshot(id, content, loaded.home, note, f"Engine {name!r} cannot be used.")
        elif not hub_models.hub_origin(place := getattr(settings, key)):
            note(f"`{key}` of engine {name} is {place}, not {id.repo} of the hub.")
    return loaded.engine(name) if missing else settings


def find_model(text: str, content: HubContent, home: Home, note: Note, effect: str) -> Path:
    """The folder that `text` means: a path, or an id of the hub, which is fetched.

    A path of that name wins, with a note. Text that is neither comes back as a path, for the caller
    to refuse. effect: for the error, what did not happen. Raises HoustonError.
    """
    id = parse_hub_id(text)
    if path := hub_models.local_path(text):
        if id:
            note(f"{text} is {path}; the hub was not asked.")
        return path
    if id is None:
        return Path(text).expanduser().absolute()
    effect = f"There is no {text} in this folder, either. {effect}"
    return fetch_snapshot(id, content, home, note, effect).folder


def fetch_snapshot(
    id: HubId,
    content: HubContent,
    home: Home | None,
    note: Note,
    effect: str,
    refresh: bool = False,
) -> HubSnapshot:
    """Make sure that all files of `id` are in the hub's cache.

    home: where its commit is looked up and kept; None resolves it now and keeps nothing. anew:
    whether to resolve it again. Raises HoustonError.
    """
    pin = None if refresh or home is None else hub_models.read_pins(home).get(str(id))
    hub_id = id.at(pin.commit) if pin else id
    if hub_id.is_commit and (folder := _cached_folder(hub_id, content)):
        return _keep_pin(home, id, HubSnapshot(hub_id, folder, None))
    try:
        listing = list_repository(hub_id, "model", effect)
    except HubUnreachable as problem:
        if refresh or (folder := _cached_folder(hub_id, content)) is None:
            raise
        snapshot = HubSnapshot(id.at(folder.name), folder, None)
        note(f"{problem.cause} {snapshot.id} is on this machine and is used.")
        return _keep_pin(home, id, snapshot)
    fixed = id.at(listing.commit)
    names = _wanted_names(listing.files, content)
    folder = _download(fixed, content, listing, names, note, effect)
    return _keep_pin(home, id, HubSnapshot(fixed, folder, listing))


def verify_snapshot(snapshot: HubSnapshot, effect: str) -> None:
    """Raise HoustonError where a fetched file is not what the hub says that it is."""
    listing = snapshot.listing or list_repository(snapshot.id, "model", effect)
    for file in sorted(snapshot.folder.iterdir()):
        listed = listing.files.get(file.name)
        if listed is not None and not listed.matches(file):
            raise HoustonError(
                f"{file} is not the file that the hub has at {snapshot.id}.",
                effect,
                f"rm -r {snapshot.folder.parent.parent}; then run the command again",
            )


def _download(
    id: HubId,
    content: HubContent,
    listing: HubListing,
    names: list[str],
    note: Note,
    effect: str,
) -> Path:
    """Fetch these files; says how much it is unless all are there."""
    hub = hub_library()
    if not any(name in names for name in _DECISIVE_FILES[content]):
        raise HoustonError(
            f"{id.repo} holds no {content}: {' or '.join(_DECISIVE_FILES[content])} is missing.",
            effect,
            "Name another repository or revision",
        )
    if _cached_folder(id, content) is None:
        size = sum(listing.files[name].size for name in names)
        note(f"fetching {id.repo} at {id.revision[:12]} ({_size_words(size)})")
    with hub_errors(str(id), "model", effect):
        hub.snapshot_download(id.repo, revision=id.revision, allow_patterns=names)
    folder = _cached_folder(id, content)
    if folder is None:
        raise HoustonError(
            f"{id.repo} holds no {content}: it has no weights as safetensors or .bin.",
            effect,
            "Name another repository or revision",
        )
    return folder


def _cached_folder(id: HubId, content: HubContent) -> Path | None:
    """Where it lies in the cache, whole; nobody is asked."""
    hub = hub_library()
    for name in _DECISIVE_FILES[content]:
        cached_file = hub.try_to_load_from_cache(id.repo, name, revision=id.revision)
        if isinstance(cached_file, str) and _is_whole(Path(cached_file).parent, content):
            return Path(cached_file).parent
    return None


def _is_whole(folder: Path, content: HubContent) -> bool:
    if content == "tokenizer":
        return (folder / "tokenizer.json").is_file()
    adapter = [(folder / name).is_file() for name in _ADAPTER_PATTERNS]
    if content == "policy" and any(adapter):
        return all(adapter)
    return hub_models.holds_weights(folder)


def _wanted_names(names: Collection[str], content: HubContent) -> list[str]:
    """Files at the top of a repository that belong to the content."""
    top = [name for name in names if not re.search(r"[/*?\[\]]", name)]
    patterns = [*_TOKENIZER_PATTERNS]
    if content != "tokenizer":
        patterns += [*_TEXT_PATTERNS, *_weight_patterns(top)]
    if content == "policy":
        patterns += [*_ADAPTER_PATTERNS, *_ABOUT_PATTERNS]
    return [name for name in top if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _weight_patterns(names: Collection[str]) -> tuple[str, ...]:
    """Of several sets of the same weights, the one that transformers reads first."""
    for stem in ("model", "*"):
        if any(fnmatchcase(name, f"{stem}*.safetensors") for name in names):
            return f"{stem}*.safetensors", f"{stem}*.safetensors.index.json"
    return "pytorch_model*.bin", "pytorch_model*.bin.index.json"


def _size_words(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"


def _keep_pin(home: Home | None, id: HubId, snapshot: HubSnapshot) -> HubSnapshot:
    """Note in the home what an id was resolved to. Raises HoustonError."""
    if home is None or not home.path.is_dir():
        return snapshot
    pin, file = HubPin(snapshot.id.revision, str(snapshot.folder)), hub_models.pins_file(home)
    unkept = f"The revision of {id}, {snapshot.id.revision[:12]}, was not stored."
    with unwritable_as_error(file, unkept), exclusive_lock(file):
        pins = hub_models.read_pins(home)
        if pins.get(str(id)) != pin:
            pins[str(id)] = pin
            text = msgspec.json.format(msgspec.json.encode(pins, order="sorted"), indent=1)
            atomic_file.write_atomically(file, text + b"\n", mode=0o640)
    return snapshot


def require_fetched(name: str, engine: EngineSettings) -> None:
    """Raise HoustonError for an engine whose model is not fetched: the daemon does not fetch."""
    for key, id in hub_models.hub_keys(engine).items():
        raise ConfigurationError(
            f"`{key}` of engine {name!r}, {id.repo} of the hub, is not on this machine.",
            "The engine was not started.",
            f"houston doctor --fetch-model {id}",
        )


def refetch_model(text: str, home: Home, note: Note) -> HubSnapshot:
    """Resolve an id again and fetch the result; the earlier files stay in the cache. Raises
    HoustonError."""
    effect = "The home keeps the revision that it had."
    id = require_hub_id(text, effect)
    return fetch_snapshot(id, "model", home, note, effect, refresh=True)
