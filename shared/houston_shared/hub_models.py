"""Models of the Hugging Face hub by id: `org/name` or `org/name@revision`, and the commit that a
home has resolved each id to.

A home resolves an id once, to a commit, and keeps that commit until somebody fetches the id again
(`houston doctor --fetch-model ID`); `hub_models.json` in the home stores it. A fetched model is in
the hub's own cache, in a folder that ends in `models--org--name/snapshots/COMMIT`, so that every
path to it says what it is. Nothing here asks the hub: `houston_daemon.engines.hub_downloads` does.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from houston_shared.atomic_file import read_json_file
from houston_shared.engine_settings import EngineSettings
from houston_shared.home import Home

DEFAULT_REVISION = "main"
_ID_PATTERN = re.compile(
    r"(?P<repo>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(?:@(?P<revision>[\w./-]{1,120}))?"
)
COMMIT_PATTERN = re.compile(r"[0-9a-f]{40}")
_SNAPSHOT_PATTERN = re.compile(r"models--([\w.-]+?)--([\w.-]+)/snapshots/([0-9a-f]{40})(?:/|$)")


class HubId(NamedTuple):
    """A repository of the hub at a revision."""

    repo: str
    """`org/name`."""
    revision: str = DEFAULT_REVISION
    """Branch, tag or commit."""

    def __str__(self) -> str:
        return f"{self.repo}@{self.revision}"

    @property
    def is_commit(self) -> bool:
        """Whether the revision can never mean another content."""
        return COMMIT_PATTERN.fullmatch(self.revision) is not None

    def at(self, commit: str) -> "HubId":
        """The same repository at a commit."""
        return HubId(self.repo, commit)


def parse_hub_id(text: str) -> HubId | None:
    """`org/name` or `org/name@revision`; None for whatever cannot be one, such as a path."""
    match = _ID_PATTERN.fullmatch(text)
    return HubId(match["repo"], match["revision"] or DEFAULT_REVISION) if match else None


def hub_origin(path: str | Path) -> str:
    """`org/name@COMMIT` where a path leads into the hub's cache; else empty."""
    match = _SNAPSHOT_PATTERN.search(str(path))
    return f"{match[1]}/{match[2]}@{match[3]}" if match else ""


class HubPin(msgspec.Struct, frozen=True):
    """What an id was resolved to."""

    commit: str
    folder: str
    """Where its files lie."""


def pins_file(home: Home) -> Path:
    """Where the commits of a home's ids are kept."""
    return home.path / "hub_models.json"


def read_pins(home: Home) -> dict[str, HubPin]:
    """Id with its revision → what it was resolved to; nothing where none was, or the file cannot be
    read: it is then resolved again."""
    return read_json_file(pins_file(home), dict[str, HubPin]) or {}


def with_hub_folders(
    settings: EngineSettings, home: Home, beside: Path | None = None
) -> EngineSettings:
    """An engine's settings with ids replaced by folders: a folder of that name here or in `beside`,
    or else the fetched model. Ids that were not fetched stay ids, with their commit if they have
    one."""
    places: dict[str, str] = {}
    pins: dict[str, HubPin] | None = None
    for key, id in hub_keys(settings).items():
        text = getattr(settings, key)
        if local := local_path(text, beside):
            places[key] = str(local)
            continue
        pins = read_pins(home) if pins is None else pins
        places[key] = _place_of(id, _find_pin(pins, id), key)
    return msgspec.structs.replace(settings, **places) if places else settings


def hub_keys(settings: EngineSettings) -> dict[str, HubId]:
    """Keys of an engine that read like a model of the hub: `model` of a child of ours, `tokenizer`
    of whatever takes token ids."""
    named = {}
    if settings.kind in ("embedded", "vllm") and not settings.addressed:
        named["model"] = settings.model
    if settings.kind not in ("chat", "script", "recorded"):
        named["tokenizer"] = settings.tokenizer
    ids = {key: parse_hub_id(text) for key, text in named.items()}
    return {key: id for key, id in ids.items() if id is not None}


def local_path(text: str, beside: Path | None = None) -> Path | None:
    """The folder or file that a name means in the current folder, or in `beside`; None for none."""
    places = [Path(text), *([beside / text] if beside else [])]
    return next((place.absolute() for place in places if place.exists()), None)


def _find_pin(pins: Mapping[str, HubPin], id: HubId) -> HubPin | None:
    """What an id was resolved to, under whatever name where it is a commit."""
    if exact_pin := pins.get(str(id)):
        return exact_pin
    same = (pin for name, pin in pins.items() if name.startswith(f"{id.repo}@"))
    return next((pin for pin in same if pin.commit == id.revision), None)


def _place_of(id: HubId, pin: HubPin | None, key: str) -> str:
    """The folder of a pinned id where it is whole; else the id, at its commit if there is one."""
    if pin is None:
        return str(id)
    folder = Path(pin.folder)
    whole = holds_weights(folder) if key == "model" else (folder / "tokenizer.json").is_file()
    return pin.folder if whole else str(id.at(pin.commit))


def holds_weights(folder: Path) -> bool:
    """Whether the model in a folder is all there: config, and every file that its index names."""
    if not (folder / "config.json").is_file():
        return False
    indexes = [*folder.glob("*.safetensors.index.json"), *folder.glob("*.bin.index.json")]
    for index in indexes:
        if (weights := read_json_file(index, _WeightIndex)) is None:
            return False
        if all((folder / shard).is_file() for shard in set(weights.weight_map.values())):
            return True
    return not indexes and any((*folder.glob("*.safetensors"), *folder.glob("*.bin")))


class _WeightIndex(msgspec.Struct):
    """What a model in several files says of them."""

    weight_map: dict[str, str]
