"""Everybody may do what their role says and no more, whatever they claim; the kernel knows them."""

import grp
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from houston_daemon.recorder.identity_and_roles import (
    REQUIRED_ROLES,
    ROLE_RANKS,
    NotAllowed,
    PeerIdentities,
)
from houston_shared import wire
from houston_shared.config_sections import DaemonSettings, RoleSettings
from houston_shared.errors import ConfigurationError
from tests.support import station as real
from tests.support.other_user import NOBODY, needs_root, open_place, speak
from tests.support.recorder_client import Station, spec, until

OPERATOR, VIEWER, MEMBER = 54_321, 54_322, 54_323
"""Users that no password file knows: numbers must do."""
USERS = {OPERATOR: "operator", NOBODY: "annotator", VIEWER: "viewer", MEMBER: "viewer"}

WRITES: dict[str, set[str]] = {
    "viewer": set(),
    "annotator": {"guidance", "bookmark", "claim"},
    "operator": {"guidance", "bookmark", "claim", "state", "spec", "stop", "cleaned", "activation"},
}


def messages(rollout: str) -> list[wire.FromPerson]:
    """One of each kind, in an order in which all of them can be done."""
    return [
        wire.AskStatus(),
        wire.ReportPresence(rollout=rollout),
        wire.BookmarkStep(rollout=rollout, step=0, note="look"),
        wire.ClaimRollout(request=os.urandom(4).hex(), rollout=rollout),
        wire.ReadNote(rollout=rollout, note=1),
        wire.ReorderGuidance(rollout=rollout, order=()),
        wire.Guide(id=os.urandom(4).hex(), rollout=rollout, text="hello"),
        wire.Steer(rollout=rollout, action="pause"),
        wire.Steer(rollout=rollout, action="resume"),
        wire.StartRollouts(request=os.urandom(4).hex(), specs=(spec(),)),
        wire.StopDaemon(),
        wire.Steer(rollout=rollout, action="cancel"),
        wire.EraseBodies(rollout=rollout),
        wire.CleanRollouts(rollouts=(rollout,)),
        wire.ActivatePolicy(request=os.urandom(4).hex(), engine=os.urandom(4).hex()),
    ]


@pytest.fixture(scope="module")
def shared() -> Iterator[Station]:
    """A station that a group may attach to, with people in each role."""
    roles = RoleSettings(operators=(str(OPERATOR),), annotators=("nobody",), viewers=(str(VIEWER),))
    group = grp.getgrgid(NOBODY).gr_name
    with open_place() as place:
        station = Station(place / "home", daemon=DaemonSettings(group=group), roles=roles).start()
        yield station
        station.stop()


def test_every_control_message_has_a_least_role() -> None:
    assert set(REQUIRED_ROLES) == set(get_args(wire.ControlRequest))
    others = {
        wire.EditGuidance,
        wire.WithdrawGuidance,
        wire.BranchRollout,
        wire.GiveVerdicts,
        wire.StoreVerdicts,
        wire.StoreProcessRewards,
        wire.StoreDraft,
        wire.RejectDraft,
        wire.StoreReviewCost,
        wire.ImportRollout,
    }
    others |= {
        wire.StartTraining,
        wire.ReportTrainingState,
        wire.CancelTraining,
        wire.RegisterPolicy,
    }
    assert {type(one) for one in messages("r")} | others == set(REQUIRED_ROLES)


def test_what_the_table_does_not_know_needs_an_operator() -> None:
    class Unheard(wire.FromPerson, frozen=True, kw_only=True):
        """A message of a later version."""

    identities = PeerIdentities("", RoleSettings(annotators=("nobody",)))
    stranger = identities.peer(f"localhost:{NOBODY}:{NOBODY}:1")
    own = identities.peer(f"localhost:{os.geteuid()}:0:1")
    assert stranger and own
    assert stranger.role == "annotator"
    assert isinstance(identities.roles.refusal(stranger, Unheard()), NotAllowed)
    assert identities.roles.refusal(own, Unheard()) is None


@needs_root
def test_who_is_named_and_kept_out_is_said_and_who_is_none_refused() -> None:
    group = grp.getgrgid(NOBODY).gr_name
    with open_place() as place:
        station = real.Station(place)
        station.home.mkdir()
        file = station.home / "houston.toml"
        named = '[roles]\noperators = ["daemon", "nobody"]\n'
        file.write_text(f'[daemon]\ngroup = "{group}"\n{named}')
        said = station.run("daemon", "start").stderr
        try:
            assert f"names daemon, not in the group {group}" in said
            assert "names daemon" in station.run("daemon", "logs").stdout
        finally:
            station.stop()
        file.write_text('[roles]\noperators = ["nobdoy"]\n')
        refused = station.run("daemon", "start", code=78).stderr
        assert str(file) in refused
        assert "nobdoy" in refused
        assert "next:" in refused


_STOP = """
import importlib.metadata, os, sys, tomllib
import houston_daemon.commands.daemon_commands
from houston_shared.command import main
from houston_shared.control_client import ControlClient
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(main(["daemon", "stop"]))
"""


@needs_root
def test_who_may_not_stop_the_daemon_hears_who_may() -> None:
    with open_place() as place:
        station = real.Station(place)
        station.environment["HOUSTON__DAEMON__GROUP"] = grp.getgrgid(NOBODY).gr_name
        station.start()
        try:
            done = subprocess.run(
                [sys.executable, "-c", _STOP],
                env=station.environment, capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            assert done.returncode == 1, done.stderr
            assert "Ask an operator: root" in done.stderr
            assert station.pid
        finally:
            station.clear()


@pytest.mark.slow
@needs_root
def test_a_group_reads_a_home_that_was_its_owner_s_alone() -> None:
    """All of it, from the first start with the group on: also what a killed daemon left."""
    group = grp.getgrgid(NOBODY).gr_name
    with open_place() as place:
        station = real.Station(place)
        station.start()
        blob = station.home / "blobs" / "aa" / f"{'a' * 64}.zst"
        blob.parent.mkdir(mode=0o700)
        blob.touch(mode=0o600)
        (station.home / "logs" / "daemon.log.1").touch(mode=0o600)
        station.kill_daemon()
        station.environment["HOUSTON__DAEMON__GROUP"] = group
        try:
            station.start()
            found = [path for end in ("*.db*", "blobs/**/*", "logs/*.log*")
                     for path in station.home.glob(end)]  # fmt: skip
            assert {path.name for path in found} >= {"houston.db-wal", "houston.db-shm", blob.name}
            for path in found:
                assert path.stat().st_gid == NOBODY, path
                assert path.stat().st_mode & 0o777 == (0o750 if path.is_dir() else 0o640), path
        finally:
            station.clear()


@needs_root
@pytest.mark.parametrize("uid", USERS)
def test_a_user_may_do_what_the_role_says(shared: Station, uid: int) -> None:
    role = USERS[uid]
    rollout = shared.person().start()[0]
    before = shared.query("SELECT max(seq) FROM events")
    asked = messages(rollout)
    heard = speak(shared.home.socket("control"), uid, NOBODY, asked)
    for message, reply in zip(asked, heard, strict=True):
        least, what = REQUIRED_ROLES[type(message)]
        if ROLE_RANKS[role] >= ROLE_RANKS[least]:
            assert isinstance(reply, wire.RequestStored | wire.Status), (message, reply)
        else:
            assert isinstance(reply, wire.Denied), (message, reply)
            assert what in reply.cause.lower()
            assert f"needs the role {least}" in reply.cause
            assert f"has the role {role}" in reply.cause
            assert f"root, {OPERATOR}" in reply.next
    no_step = wire.BranchRollout(request=os.urandom(4).hex(), rollout=rollout, step=1)
    steps = (wire.JudgedSteps(first=1, last=1, verdict="keep"),)
    no_verdict = wire.GiveVerdicts(request="r", rollout=rollout, steps=steps)
    heard = speak(shared.home.socket("control"), uid, NOBODY, [no_step, no_verdict])
    needs = ("operator", role != "operator"), ("annotator", role == "viewer")
    for reply, (least, refused) in zip(heard, needs, strict=True):
        assert isinstance(reply, wire.Denied)
        assert (f"needs the role {least}" in reply.cause) == refused
    written = shared.query("SELECT DISTINCT kind FROM events WHERE seq > ?", before[0][0])
    assert {kind for (kind,) in written} - {"refused"} == WRITES[role]


@needs_root
def test_who_has_no_role_is_not_heard(shared: Station) -> None:
    for folder in (shared.home.path, shared.home.run):
        folder.chmod(0o755)
    (shared.home.run / "control.sock").chmod(0o666)
    (reply,) = speak(shared.home.socket("control"), 54_399, 54_399, [wire.AskStatus()])
    assert isinstance(reply, wire.Denied)
    assert reply.cause == "User 54399 is not allowed to send messages here."
    refused = "SELECT count(*) FROM events WHERE kind = 'refused'"
    assert until(lambda: shared.query(refused)[0][0] > 0)


@needs_root
def test_only_one_s_own_words_are_changed_but_by_an_operator(shared: Station) -> None:
    person = shared.person()
    rollout, endpoint = person.start()[0], shared.home.socket("control")
    person.guide(rollout, "of the operator", "o")
    own = [
        wire.Guide(id="a", rollout=rollout, text="first"),
        wire.EditGuidance(id="a", revision=1, text="second"),
        wire.BookmarkStep(rollout=rollout, step=0, claimed="root", note="not yours"),
    ]
    assert all(isinstance(one, wire.RequestStored) for one in speak(endpoint, NOBODY, NOBODY, own))
    assert isinstance(
        person.ask(wire.BookmarkStep(rollout=rollout, step=0, note="mine")), wire.RequestStored
    )
    others = [
        wire.EditGuidance(id="o", revision=1, text="not yours", claimed="root"),
        wire.WithdrawGuidance(id="o", claimed="root"),
        wire.BookmarkStep(rollout=rollout, step=0, remove=True, claimed="root"),
        wire.Guide(id="o", rollout=rollout, text="of the operator"),
    ]
    for reply in speak(endpoint, NOBODY, NOBODY, others):
        assert isinstance(reply, wire.Denied)
    assert [row[0] for row in shared.query("SELECT author FROM bookmarks")].count("root") == 1
    (found,) = speak(endpoint, OPERATOR, NOBODY, [wire.WithdrawGuidance(id="a")])
    assert found.guidance.state == "withdrawn"
    assert shared.query("SELECT state FROM guidance WHERE id = 'o'") == [("queued",)]


@pytest.mark.slow
@needs_root
def test_a_group_without_named_annotators_annotates_as_before() -> None:
    group = grp.getgrgid(NOBODY).gr_name
    identities = PeerIdentities(group, RoleSettings(viewers=(str(VIEWER),)))
    roles = {
        uid: peer.role
        for uid in (MEMBER, VIEWER, 0)
        if (peer := identities.peer(f"localhost:{uid}:{NOBODY}:7"))
    }
    assert roles == {MEMBER: "annotator", VIEWER: "viewer", 0: "operator"}
    outside = identities.peer("localhost:54399:54399:7")
    assert outside is not None
    assert outside.role is None


_MEMBERSHIP = """
import sys, time
from houston_daemon.recorder import identity_and_roles
from houston_shared.config_sections import RoleSettings
identity_and_roles._PEER_CACHE_SECONDS = 0.0
identities = identity_and_roles.PeerIdentities("", RoleSettings(operators=("@station",)))
address = f"localhost:{sys.argv[1]}:{sys.argv[1]}:7"
for members in ("", "nobody", ""):
    with open("/etc/group", "w") as file:
        file.write(f"root:x:0:\\nstation:x:4242:{members}\\n")
    print(identities.peer(address).role)
"""


@needs_root
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_supplementary_groups_count_and_so_does_leaving_one(tmp_path: Path) -> None:
    groups = tmp_path / "group"
    groups.write_text("root:x:0:\nstation:x:4242:\n")
    done = subprocess.run(
        ["bwrap", "--dev-bind", "/", "/", "--bind", str(groups), "/etc/group", sys.executable,
         "-c", _MEMBERSHIP, str(NOBODY)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["None", "operator", "None"], done.stderr


@pytest.mark.parametrize(
    "roles",
    [RoleSettings(operators=("nobody-of-that-name",)), RoleSettings(viewers=("@no-such-group",))],
)
def test_a_name_that_is_nobody_s_is_a_sentence(roles: RoleSettings, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as problem:
        Station(tmp_path / "home", roles=roles).start()
    assert "of this machine" in problem.value.cause


def test_a_single_user_s_home_needs_no_roles(tmp_path: Path) -> None:
    station = Station(tmp_path / "home").start()
    try:
        person = station.person()
        rollout = person.start()[0]
        for message in messages(rollout):
            reply = person.ask(message)
            assert isinstance(reply, wire.RequestStored | wire.Status), (message, reply)
    finally:
        station.stop()
