"""Which secrets of the daemon's environment a task names, and which of them are not there.

A key must be known as a secret, by its name or by `[secrets] names`, before a rollout gets it: what
is not known is not taken out of observations, errors and logs. Only the daemon and its workers ask;
a list of tasks does not pay for it.
"""

from collections.abc import Iterator

from houston_shared.secret_redaction import (
    MIN_SECRET_CHARACTERS,
    find_placeholders,
    process_redactor,
)
from houston_shared.task import Task


def named_secrets(task: Task) -> Iterator[tuple[str, str]]:
    """Where in the task file a secret is named, and its name."""
    for value in task.environment_variables.values():
        yield from (("environment_variables", name) for name in find_placeholders(value))
    for server, settings in task.mcp.servers.items():
        for value in (*settings.env.values(), *settings.headers.values()):
            yield from ((f"mcp.servers.{server}", name) for name in find_placeholders(value))
    if task.environment == "http" and task.http.api_key_env:
        yield "http.api_key_env", task.http.api_key_env
    if task.environment == "openenv" and task.openenv.api_key_env:
        yield "openenv.api_key_env", task.openenv.api_key_env


def missing_secrets(task: Task) -> list[tuple[str, str]]:
    """Those of `named` that this process does not have."""
    names = process_redactor().names
    return [pair for pair in dict.fromkeys(named_secrets(task)) if pair[1] not in names]


def describe_missing_secret(where: str, name: str) -> tuple[str, str]:
    """What is missing, and what to do, as sentences."""
    return (
        f"`{where}` of the task names {name}, and the daemon's environment has no secret {name} of"
        f" at least {MIN_SECRET_CHARACTERS} characters.",
        f"Start the daemon with {name} set; if its name does not look like a secret's, add it to"
        " [secrets] names in houston.toml.",
    )
