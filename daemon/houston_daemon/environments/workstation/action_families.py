"""The families of the workstation beyond terminals and files, made for one rollout.

A family is an object with its actions and the doing of them; the workstation finds it by the type
of the arguments. What the node offers them stands in `[tools]` of houston.toml.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from houston_daemon.environments.protocol import Stop
from houston_daemon.environments.retrieval.searcher import make_searcher
from houston_daemon.environments.tool_arguments import Arguments
from houston_daemon.environments.typed_observation import Observation
from houston_daemon.environments.workstation.browse_actions import BrowseActions
from houston_daemon.environments.workstation.document_converter import Converter
from houston_daemon.environments.workstation.media_endpoint import Endpoint
from houston_daemon.environments.workstation.page_view import PageStore
from houston_daemon.environments.workstation.parse_actions import ParseActions
from houston_daemon.environments.workstation.search_actions import SearchActions
from houston_daemon.environments.workstation.web_fetch import Fetcher
from houston_daemon.environments.workstation.web_page import PageCache
from houston_daemon.environments.workstation.workstation_hosts import WorkstationHost
from houston_daemon.environments.workstation.workstation_state import WorkstationState
from houston_daemon.hosts.host_protocol import RolloutHost
from houston_shared.config_sections import MultimodalSettings, WebBrowseSettings
from houston_shared.records import RolloutSpec
from houston_shared.task import Task
from houston_shared.terminal_log_files import rollout_folder


class ActionFamily(Protocol):
    """Some actions and the doing of them."""

    actions: tuple[type[Arguments], ...]

    async def act(self, arguments: Arguments, stop: Stop) -> Observation:
        """Run one of its actions. Raises PathRefused and HoustonError, whose words are shown."""
        ...


def action_families(
    spec: RolloutSpec,
    task: Task,
    place: WorkstationHost,
    local: RolloutHost | None,
    state: Callable[[], WorkstationState],
    characters: int,
) -> tuple[ActionFamily, ...]:
    """The families of one rollout; nothing is touched before their first action.

    place: where the workspace is. local: this machine, where that is another: pages come here.
    """
    root, converter = Path(spec.host_root), Converter(local or place.host)
    searcher = make_searcher(spec, task)
    folder = rollout_folder(root, spec.rollout)
    settings = spec.tool_settings
    media = msgspec.convert(settings.get("multimodal", {}), MultimodalSettings)
    pages = msgspec.convert(settings.get("browse", {}), WebBrowseSettings)
    private = task.browse.private_addresses
    browse = BrowseActions(
        Fetcher(
            pages,
            private=private,
            proxy=_of_environment(pages.proxy_env),
            hosts=task.page_hosts,
        ),
        PageCache(
            root / "pages",
            seconds=pages.cache_seconds,
            megabytes=pages.cache_mb,
            scope=f"{private:d} {' '.join(task.page_hosts)}",
        ),
        PageStore(folder / "pages", state),
        converter,
        searcher,
        staging=folder / "staging",
        characters=characters,
    )
    endpoint = Endpoint(media, _of_environment(media.api_key_env))
    parse = ParseActions(place.documents, endpoint, place.files.write)
    return parse, SearchActions(searcher), browse


def _of_environment(name: str) -> str:
    """The value of a variable that the configuration names; empty where it names none."""
    return os.environ.get(name, "") if name else ""
