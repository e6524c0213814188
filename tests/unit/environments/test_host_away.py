"""What an agent is told of a host that is away: the reason, and nothing of where things lie there.

No machine is reached: the host has the place that the far end named before it went away.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from houston_daemon.agent.agent_loop import may_run_final_evaluation
from houston_daemon.environments import call_handling
from houston_daemon.environments.workstation import workstation_hosts
from houston_daemon.environments.workstation.workstation_hosts import WorkstationHost
from houston_daemon.hosts.host_protocol import HostAway, WorkspaceGone
from houston_daemon.hosts.ssh import ssh_protocol
from houston_daemon.hosts.ssh.ssh_host import SshHost
from houston_shared.config_sections import HostSettings
from houston_shared.records import ToolCall

THERE = Path("/home/ada/.local/state/houston/key/rollouts/r1/workspace")


class _AwayCommands:
    def __init__(self, away: HostAway) -> None:
        self._away = away

    async def act(self, *_: object) -> None:
        raise self._away

    budget_status = act


async def _back() -> None:
    raise AssertionError("nobody waits for it here")


def _away_host() -> SshHost:
    hello = ssh_protocol.Hello(
        version="0", rollout="r1", root="", key="k", owner="k:/h", sandbox="none", network=False
    )
    host = SshHost("gpu2", HostSettings(ssh="nowhere.invalid"), hello)
    host.workspace, host.inside = THERE, "/workspace"
    return host


@pytest.mark.parametrize("name", ["eval", "finish"])
async def test_a_last_evaluation_that_a_person_holds_up_is_run_when_they_have_helped(
    name: str,
) -> None:
    away = HostAway("gpu2", "it is gone", _back, needed=WorkspaceGone(THERE))
    place = cast(WorkstationHost, SimpleNamespace(host=_away_host()))
    call = ToolCall(id="1", name=name, arguments={})
    told = await workstation_hosts.host_away_observation(call, place, away)
    result = call_handling.result(call, told, 4_000, 0.0)
    assert f"{name} was not done" in result.text
    assert may_run_final_evaluation([result]) == (name == "eval")


@pytest.mark.parametrize("cut", [False, True])
async def test_the_reason_names_no_place_of_the_host(cut: bool) -> None:
    host = _away_host()
    away = HostAway("gpu2", WorkspaceGone(THERE).cause.rstrip("."), _back, cut=cut)
    place = cast(WorkstationHost, SimpleNamespace(host=host, commands=_AwayCommands(away)))
    call = ToolCall(id="1", name="run_command", arguments={"session_id": "main"})
    told: list[Any] = [
        await workstation_hosts.host_away_observation(call, place, away),
        await workstation_hosts.interrupted_observation(call, place),
        await workstation_hosts.act_on_all_hosts([place], cast(Any, None), cast(Any, None)),
    ]
    text = " ".join(f"{one.error} {getattr(one, 'now', '')}" for one in told)
    assert "/home/ada" not in text
    assert text.count("The workspace /workspace is gone") == 3
