"""What http offers beside the simulator's tools, and what a task must name for it."""

from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from msgspec import Meta

from houston_daemon.environments.arguments import Arguments, Catalog, tool
from houston_daemon.environments.foreign.tools import Offered
from houston_daemon.environments.http.messages import Reset
from houston_shared.errors import ConfigurationError
from houston_shared.task import LoadedTask

SOURCE = "simulator"


class Act(Arguments, frozen=True, kw_only=True):
    """Do something in the world, in its own words."""

    name: ClassVar[str] = "act"
    family: ClassVar[str] = "http"
    action: Annotated[str, Meta(min_length=1, max_length=4_000, description="The action.")]


class Finish(Arguments, frozen=True, kw_only=True):
    """End the episode when the task is done."""

    name: ClassVar[str] = "finish"
    family: ClassVar[str] = "http"


OWN = Catalog({Finish.name: Finish})


def offered(start: Reset) -> list[Offered]:
    """The simulator's tools; `act` with a text where it names none."""
    if not start.tools:
        act = tool(Act)
        return [Offered(SOURCE, act.name, act.description, act.parameters)]
    return [Offered(SOURCE, one.name, one.description, one.parameters) for one in start.tools]


def check_task(task: LoadedTask) -> None:
    """Raise ConfigurationError for an address that none is, or an evaluator that nobody runs."""
    url = task.task.http.url
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise ConfigurationError(
            f"{task.file}: `http.url` is {url!r}; http needs the address of a simulator,"
            " http://HOST:PORT/…"
        )
    if task.task.evaluate.command:
        raise ConfigurationError(f"{task.file}: http runs no evaluator; the simulator scores.")
