"""The local host is what environments ask for; the type checker reads this file too."""

from pathlib import Path

from houston_daemon.hosts.host_protocol import HostTerminal, RolloutHost
from houston_daemon.hosts.local_host import LocalHost
from houston_daemon.hosts.terminals.local_terminal import LocalTerminal


def _as_host(host: LocalHost) -> RolloutHost:
    return host


def _as_terminal(terminal: LocalTerminal) -> HostTerminal:
    return terminal


def test_a_rollouts_folders_lie_under_the_root(tmp_path: Path) -> None:
    host = _as_host(LocalHost(tmp_path, "r1", sandbox="bubblewrap", network=False, hidden=()))
    assert host.workspace == tmp_path / "rollouts" / "r1" / "workspace"
    assert host.inside == "/workspace"
    bare = LocalHost(tmp_path, "r1", sandbox="none", network=False, hidden=())
    assert bare.inside == str(bare.workspace)
    assert not (tmp_path / "rollouts").exists()
