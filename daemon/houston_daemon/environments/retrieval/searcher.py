"""Searching as the tools do it: the provider that node and task name, and what it answered before.

The one place that knows all providers.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from houston_daemon.environments.retrieval.answers import Answers
from houston_daemon.environments.retrieval.bing import Bing
from houston_daemon.environments.retrieval.corpus import Corpus
from houston_daemon.environments.retrieval.documents import Document
from houston_daemon.environments.retrieval.protocol import Hit, Provider, SearchFailed
from houston_daemon.environments.retrieval.searxng import Searxng
from houston_daemon.environments.retrieval.serper import Serper
from houston_daemon.environments.retrieval.tavily import Tavily
from houston_shared.config_tools import SearchTool
from houston_shared.records import RolloutSpec
from houston_shared.secret_values import restored
from houston_shared.task import Task
from houston_shared.toml_file import convert

NONE = (
    "No search provider is configured on this node; go on without the web, with the files and"
    " tools that you have."
)


class _Web(Protocol):
    def __call__(self, url: str, key: str, seconds: float) -> Provider: ...


WEB: Mapping[str, _Web] = {
    "serper": Serper,
    "tavily": Tavily,
    "bing": Bing,
    "searxng": Searxng,
}
"""Providers on the web by their name in `[tools.search]`."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search gave."""

    hits: list[Hit]
    from_cache: bool


class Searcher:
    """Searches with one provider."""

    def __init__(self, provider: Provider | SearchFailed, answers: Answers) -> None:
        """provider: or why there is none."""
        self._provider = provider
        self._answers = answers

    async def search(self, query: str, top_k: int) -> Found:
        """At most `top_k` hits. Raises SearchFailed; safe to cancel."""
        provider = self._provider
        if isinstance(provider, SearchFailed):
            raise provider
        if not provider.keeps:
            return Found(await provider.search(query, top_k), False)
        asked = (provider.name, " ".join(query.split()), top_k)
        kept = await asyncio.to_thread(self._answers.find, *asked)
        if kept is not None:
            return Found(kept, True)
        hits = await provider.search(query, top_k)
        await asyncio.to_thread(self._answers.keep, *asked, hits)
        return Found(hits, False)

    async def document(self, address: str) -> Document | None:
        """What stands under an address of a search in a corpus; None where it is not the corpus's.

        Raises SearchFailed.
        """
        provider = self._provider
        return await provider.document(address) if isinstance(provider, Corpus) else None


def make_searcher(spec: RolloutSpec, task: Task) -> Searcher:
    """The search of one rollout; nothing is touched before the first one.

    A task's own corpus comes first, then the node's provider, then the node's corpus.
    """
    settings = search_settings(spec.tool_settings)
    root = retrieval_root(spec)
    answers = Answers(root / "answers.db", settings.cache_seconds, settings.cache_mb)
    if task.search.corpus:
        return Searcher(task_corpus(spec, task), answers)
    try:
        return Searcher(_provider(settings, root), answers)
    except SearchFailed as why:
        return Searcher(why, answers)


def task_corpus(spec: RolloutSpec, task: Task) -> Corpus:
    """The corpus beside the task file."""
    settings = search_settings(spec.tool_settings)
    source = Path(spec.task.folder) / task.search.corpus
    return Corpus(source, retrieval_root(spec), settings.seconds)


def retrieval_root(spec: RolloutSpec) -> Path:
    """Where a host keeps answers and indexes, for all its rollouts."""
    return Path(spec.host_root) / "retrieval"


def search_settings(tools: Mapping[str, Mapping[str, Any]]) -> SearchTool:
    """`[tools.search]` as it was when the rollout started."""
    return convert(dict(tools.get("search", {})), SearchTool, "the rollout's [tools.search]")


def _provider(settings: SearchTool, root: Path) -> Provider:
    """Raises SearchFailed (`not_configured`) saying what is missing."""
    name = settings.provider
    if name in ("", "corpus"):
        if settings.corpus:
            return Corpus(Path(settings.corpus), root, settings.seconds)
        raise SearchFailed("not_configured", NONE)
    if name not in WEB:
        raise SearchFailed(
            "not_configured", f"This node names a search provider {name[:40]!r}, which is none."
        )
    if name == "searxng" and not settings.url:
        raise SearchFailed("not_configured", "The node's search provider has no address.")
    return WEB[name](restored(settings.url), _key(settings), settings.seconds)


def is_key(text: str) -> bool:
    """Whether a header can carry it: a line end, as files have one, is no part of a key."""
    return text.isascii() and text.isprintable() and text == text.strip()


def _key(settings: SearchTool) -> str:
    """The key, from the environment of the daemon."""
    variable = settings.api_key_env
    if not variable and settings.provider == "searxng":
        return ""
    key = os.environ.get(variable, "")
    if not key:
        raise SearchFailed("not_configured", "The key of the node's search provider is not set.")
    if not is_key(key):
        raise SearchFailed("not_configured", "The key of the node's search provider is no key.")
    return key
