"""What `houston doctor` says of `[tools.search]`, which agents would otherwise find out alone."""

import os
from collections.abc import Iterator
from pathlib import Path

from houston_daemon.environments.retrieval.searcher import WEB_PROVIDERS, is_key
from houston_daemon.service.finding import Finding, ok
from houston_shared.config import Loaded
from houston_shared.config_tools import SearchTool

_NAME = "search"


def search(loaded: Loaded) -> Iterator[Finding]:
    """The provider of searches: whether there is one by this name, its address and its key."""
    settings = loaded.tools.search
    if settings.provider in ("", "corpus"):
        yield _corpus(settings)
    elif settings.provider not in WEB_PROVIDERS:
        known = ", ".join((*WEB_PROVIDERS, "corpus"))
        said = f"there is no provider {settings.provider!r}"
        yield Finding(_NAME, "fail", said, f"Set `tools.search.provider` to one of {known}.")
    elif settings.provider == "searxng" and not settings.url:
        yield Finding(_NAME, "fail", "searxng has no address", "Set `tools.search.url`.")
    else:
        yield _key(settings)


def _corpus(settings: SearchTool) -> Finding:
    source = Path(settings.corpus)
    if settings.corpus and not source.exists():
        return Finding(_NAME, "fail", f"there is no {source}", "Correct `tools.search.corpus`.")
    if settings.corpus:
        return ok(_NAME, f"the corpus {source}")
    if settings.provider:
        return Finding(_NAME, "fail", "no corpus is named", "Set `tools.search.corpus`.")
    return ok(_NAME, "no provider: only tasks with a corpus of their own can search")


def _key(settings: SearchTool) -> Finding:
    name = settings.api_key_env
    if not name and settings.provider == "searxng":
        return ok(_NAME, settings.provider)
    if not name:
        step = "Name the key's variable in `tools.search.api_key_env`."
        return Finding(_NAME, "fail", f"{settings.provider} has no key", step)
    if not os.environ.get(name):
        said = f"{settings.provider}: {name} is not set in this shell"
        return Finding(_NAME, "warn", said, f"Start the daemon with {name} set.")
    if not is_key(os.environ[name]):
        said = f"{settings.provider}: what {name} holds is no key"
        return Finding(_NAME, "fail", said, f"Set {name} to the key alone, without a line end.")
    return ok(_NAME, f"{settings.provider}, with the key in {name}")
