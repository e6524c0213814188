"""Machines that rollouts work on, as `houston.toml` has them: `[hosts]` and `[hosts.NAME]`."""

from typing import Annotated, Any

import msgspec

from houston_shared.toml_file import Settings

HostName = Annotated[str, msgspec.Meta(pattern=r"^(?!local$)[a-z0-9][a-z0-9-]{0,19}$")]
LOCAL = "local"
"""The name of the machine that the daemon runs on, among a task's hosts."""


class Host(Settings, frozen=True):
    """One machine that is reached over SSH, `[hosts.NAME]`. houston-agents is installed there, and
    keys are such that `ssh` asks nothing."""

    ssh: str
    """What `ssh` connects to: `host`, `user@host`, or a name of the user's ssh configuration."""
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 0
    """Port of its sshd; 0 for what ssh has configured."""
    identity_file: str = ""
    """Private key; empty for what ssh has configured."""
    ssh_config: str = ""
    """ssh configuration to use instead of the user's."""
    host_root: str = ""
    """Where that machine keeps what rollouts own; empty for the state folder of the user there."""
    command: str = "houston"
    """Path of `houston` there; `~/` begins in the home folder of the user there."""
    gpus: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    """GPUs that rollouts, engines and trainers may lease there."""
    memory_mb: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Most memory of all rollouts there together, in MB; 0 is nine tenths of that machine's."""


class Hosts(Settings, frozen=True):
    """Machines with terminals: this one, and `[hosts.NAME]` for each other."""

    root: str = ""
    """Where this machine keeps what rollouts own; empty for the user's state folder."""
    gpus: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    """GPUs of this machine that rollouts, engines and trainers may lease."""
    memory_mb: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Most memory of all rollouts on this machine together, in MB of 1,048,576 bytes; 0 is nine
    tenths of the machine's. Each rollout also has its own limit (`[sandbox] memory_mb`)."""
    named: dict[HostName, Host] = {}
    """The other machines, each written as a table `[hosts.NAME]`."""


def as_written(cause: str) -> str:
    """What is wrong with a table of a host, with its name as it stands in the file."""
    return cause.replace("`hosts.named.", "`hosts.").replace("`hosts.named`", "`hosts`")


def named_hosts(tables: dict[str, Any]) -> dict[str, Any]:
    """`[hosts.NAME]` as an entry of `hosts.named`, which is where the structs have it."""
    hosts = tables.get("hosts")
    if not isinstance(hosts, dict):
        return tables
    own = set(Hosts.__struct_fields__)
    tables_of_hosts = {key: value for key, value in hosts.items() if isinstance(value, dict)}
    named = {key: value for key, value in tables_of_hosts.items() if key not in own}
    if not named:
        return tables
    rest = {key: value for key, value in hosts.items() if key not in named}
    return {**tables, "hosts": {**rest, "named": {**rest.get("named", {}), **named}}}
