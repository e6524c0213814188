"""Checks of `houston doctor` for what the configuration names: engines at addresses, models of the
hub, the search provider, hosts over SSH, a process reward model, the external store.

Each check is a generator that `doctor_commands.ALL_CHECKS` names; that module also has the checks
of the machine itself. They change nothing.
"""

import asyncio
import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from houston_daemon.artifacts import store_owner
from houston_daemon.artifacts.artifact_store import ArtifactStore
from houston_daemon.environments.retrieval.searcher import WEB_PROVIDERS, is_key
from houston_daemon.hosts.ssh.ssh_command import manual_command
from houston_daemon.hosts.ssh.ssh_host import SshHost
from houston_daemon.hosts.ssh.ssh_protocol import Hello, HostWelcome
from houston_daemon.service.check_findings import CheckFinding, ok_finding
from houston_daemon.service.engine_endpoints import connection_problem
from houston_daemon.service.rollout_start_checks import has_engine_key, require_engine
from houston_daemon.training.prm.reward_policy import find_reward_policy, require_scorer_packages
from houston_shared import home_lock, hub_models
from houston_shared.config import LoadedConfiguration
from houston_shared.config_sections import HostSettings, WebSearchSettings
from houston_shared.errors import HoustonError
from houston_shared.store import rollout_queries, store_reader
from houston_shared.store.store_reader import Reader

_SEARCH, _STORE = "search", "artifacts"
_START_STEP = "houston daemon start, which copies"


def check_hub_models(loaded: LoadedConfiguration) -> Iterator[CheckFinding]:
    """Models and tokenizers of the hub that engines name."""
    for name, configured in sorted(loaded.config.engines.items()):
        engine = loaded.engine(name)
        missing = hub_models.hub_keys(engine)
        for key in hub_models.hub_keys(configured):
            if key in missing:
                problem = f"{key} of {name}, {missing[key]}, is not fetched"
                step = f"houston doctor --fetch-model {missing[key]}"
                yield CheckFinding("hub", "warn", problem, step)
            else:
                place = getattr(engine, key)
                yield ok_finding("hub", f"{key} of {name}: {hub_models.hub_origin(place) or place}")


def check_engines_at_urls(loaded: LoadedConfiguration) -> Iterator[CheckFinding]:
    """Engines of the configuration that have a URL, checked as `rollout start` does. An engine that
    nobody has started yet is not a fault of this machine."""
    for name, engine in sorted(loaded.config.engines.items()):
        if not engine.addressed:
            continue
        line, place = f"engine {name}", engine.url or f"one of its {len(engine.urls)} servers"
        try:
            if engine.url and (reason := connection_problem(engine.url)):
                step = f"Start it, or correct `engines.{name}.url`."
                yield CheckFinding(line, "warn", reason, step)
                continue
            require_engine(loaded, name, loaded.engine(name), {})
        except HoustonError as problem:
            yield CheckFinding(line, "fail", problem.cause.rstrip("."), problem.next)
            continue
        if has_engine_key(engine):
            yield ok_finding(line, f"{place} answers")
        else:
            text = f"{place} answers; its key is not set in this shell, so no more was asked"
            yield CheckFinding(line, "warn", text, f"houston engine check {name}, with its key")


def check_waiting_workers(loaded: LoadedConfiguration) -> Iterator[CheckFinding]:
    """What the workers of a running daemon say of their engines: an open port proves little."""
    if home_lock.find_running_daemon(loaded.home) is None or not store_reader.has_database(
        loaded.home
    ):
        return
    with Reader(loaded.home) as reader:
        engines = reader.run(rollout_queries.list_engines_waited_for())
    step = "houston rollout list --state running"
    for waited in engines:
        yield CheckFinding(f"engine {waited.engine}", "warn", waited.sentence, step)


def check_search_provider(loaded: LoadedConfiguration) -> Iterator[CheckFinding]:
    """The provider of searches: whether there is one by this name, its address and its key."""
    settings = loaded.tools.search
    if settings.provider in ("", "corpus"):
        yield _check_corpus(settings)
    elif settings.provider not in WEB_PROVIDERS:
        names = ", ".join((*WEB_PROVIDERS, "corpus"))
        problem = f"there is no provider {settings.provider!r}"
        yield CheckFinding(
            _SEARCH, "fail", problem, f"Set `tools.search.provider` to one of {names}."
        )
    elif settings.provider == "searxng" and not settings.url:
        yield CheckFinding(_SEARCH, "fail", "searxng has no address", "Set `tools.search.url`.")
    else:
        yield _check_search_key(settings)


def _check_corpus(settings: WebSearchSettings) -> CheckFinding:
    source = Path(settings.corpus)
    if settings.corpus and not source.exists():
        return CheckFinding(
            _SEARCH, "fail", f"there is no {source}", "Correct `tools.search.corpus`."
        )
    if settings.corpus:
        return ok_finding(_SEARCH, f"the corpus {source}")
    if settings.provider:
        return CheckFinding(_SEARCH, "fail", "no corpus is named", "Set `tools.search.corpus`.")
    return ok_finding(_SEARCH, "no provider: only tasks with a corpus of their own can search")


def _check_search_key(settings: WebSearchSettings) -> CheckFinding:
    name = settings.api_key_env
    if not name and settings.provider == "searxng":
        return ok_finding(_SEARCH, settings.provider)
    if not name:
        step = "Name the key's variable in `tools.search.api_key_env`."
        return CheckFinding(_SEARCH, "fail", f"{settings.provider} has no key", step)
    if not os.environ.get(name):
        problem = f"{settings.provider}: {name} is not set in this shell"
        return CheckFinding(_SEARCH, "warn", problem, f"Start the daemon with {name} set.")
    if not is_key(os.environ[name]):
        problem = f"{settings.provider}: what {name} holds is no key"
        return CheckFinding(
            _SEARCH, "fail", problem, f"Set {name} to the key alone, without a line end."
        )
    return ok_finding(_SEARCH, f"{settings.provider}, with the key in {name}")


def check_hosts(loaded: LoadedConfiguration) -> Iterator[CheckFinding]:
    """One finding for each `[hosts.NAME]`."""
    named = loaded.config.hosts.named
    for (name, settings), answer in zip(
        named.items(), asyncio.run(_ask_all_hosts(named)), strict=True
    ):
        yield _host_finding(name, settings, answer)


async def _ask_all_hosts(named: dict[str, HostSettings]) -> list[HostWelcome | HoustonError]:
    return list(await asyncio.gather(*(_ask_host(*item) for item in named.items())))


async def _ask_host(name: str, settings: HostSettings) -> HostWelcome | HoustonError:
    host = SshHost(
        name,
        settings,
        Hello(
            version=version("houston-agents"),
            rollout="",
            root=settings.host_root,
            key="doctor",
            owner="",
            sandbox="bubblewrap",
            network=False,
        ),
    )
    try:
        return await host.look()
    except HoustonError as problem:
        return problem
    finally:
        await host.close()


def _host_finding(
    name: str, settings: HostSettings, answer: HostWelcome | HoustonError
) -> CheckFinding:
    check = f"host {name}"
    if isinstance(answer, HoustonError):
        step = f"{manual_command(settings)}  # must ask nothing"
        return CheckFinding(check, "fail", answer.cause, step)
    words = f"houston-agents {answer.version} at {settings.ssh}, {settings.gpus} GPUs"
    if answer.trouble:
        return CheckFinding(
            check, "fail", f"{words}; {answer.trouble}", f"On {settings.ssh}: houston doctor"
        )
    if answer.version != version("houston-agents"):
        step = f"Install houston-agents {version('houston-agents')} there."
        return CheckFinding(check, "warn", f"{words}; here it is another", step)
    return ok_finding(check, words)


def check_process_reward(loaded: LoadedConfiguration) -> Iterator[CheckFinding]:
    """The process reward model that `[review]` names: there, of its kind, and its packages."""
    name = loaded.config.review.process_reward
    if not name or not store_reader.has_database(loaded.home):
        return
    try:
        require_scorer_packages()
        with Reader(loaded.home) as reader:
            model = find_reward_policy(loaded.home, reader, name)
    except HoustonError as problem:
        yield CheckFinding("process reward", "warn", problem.cause, problem.next)
    else:
        yield ok_finding("process reward", f"{model.name} scores decisions")


def check_artifact_store(loaded: LoadedConfiguration) -> Iterator[CheckFinding]:
    """The store that `[artifacts]` names: whether it answers, and to which home it belongs."""
    url = loaded.config.artifacts.url
    if not url:
        return
    try:
        owners = store_owner.read_owners(ArtifactStore(url))
    except HoustonError as problem:
        yield CheckFinding(_STORE, "fail", problem.cause, problem.next)
        return
    copied = store_owner.read_copied(loaded.home, url)
    if owners and not store_owner.is_owner(owners[-1], loaded.home, store_owner.this_host()):
        error = store_owner.StoreTaken(url, owners[-1])
        yield CheckFinding(_STORE, "fail", error.cause, error.next)
    elif copied is None:
        yield CheckFinding(_STORE, "warn", f"{url} answers; nothing is copied yet", _START_STEP)
    else:
        yield ok_finding(_STORE, f"{url} has event {copied.seq}, as of {copied.at}")
