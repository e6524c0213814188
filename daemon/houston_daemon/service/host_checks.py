"""What `houston doctor` says of machines over SSH: reached or not, its Houston, its sandbox."""

import asyncio
from collections.abc import Iterator
from importlib.metadata import version

from houston_daemon.hosts.ssh.host import SshHost
from houston_daemon.hosts.ssh.messages import Hello, Welcome
from houston_daemon.hosts.ssh.settings import by_hand
from houston_daemon.service.finding import Finding, ok
from houston_shared.config import Loaded
from houston_shared.config_hosts import Host
from houston_shared.errors import HoustonError


def hosts(loaded: Loaded) -> Iterator[Finding]:
    """One finding for each `[hosts.NAME]`."""
    named = loaded.config.hosts.named
    for (name, settings), found in zip(named.items(), asyncio.run(_all(named)), strict=True):
        yield _finding(name, settings, found)


async def _all(named: dict[str, Host]) -> list[Welcome | HoustonError]:
    return list(await asyncio.gather(*(_look(*item) for item in named.items())))


async def _look(name: str, settings: Host) -> Welcome | HoustonError:
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


def _finding(name: str, settings: Host, found: Welcome | HoustonError) -> Finding:
    check = f"host {name}"
    if isinstance(found, HoustonError):
        step = f"{by_hand(settings)}  # must ask nothing"
        return Finding(check, "fail", found.cause, step)
    said = f"houston-agents {found.version} at {settings.ssh}, {settings.gpus} GPUs"
    if found.trouble:
        return Finding(
            check, "fail", f"{said}; {found.trouble}", f"On {settings.ssh}: houston doctor"
        )
    if found.version != version("houston-agents"):
        step = f"Install houston-agents {version('houston-agents')} there."
        return Finding(check, "warn", f"{said}; here it is another", step)
    return ok(check, said)
