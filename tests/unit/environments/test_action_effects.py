"""What an action can change is declared where it is defined, and decides everywhere."""

from types import SimpleNamespace
from typing import Any, ClassVar, cast

import msgspec
import pytest

from houston_daemon.environments.environment_protocol import Stop
from houston_daemon.environments.workstation.remote_file_actions import RemoteFileActions
from houston_daemon.environments.workstation.workstation_hosts import with_host_argument
from houston_daemon.environments.workstation_actions import (
    ACTIONS,
    FILE_ACTIONS,
    SCORE_PRESERVING_ACTIONS,
    FileAction,
    is_known_to_look,
    is_known_to_write,
)
from houston_daemon.hosts.host_protocol import HostAway
from houston_daemon.hosts.ssh.ssh_host import SshHost
from houston_daemon.review.attention_window import ObservedCall
from houston_daemon.review.rules.written_files import can_change_files


class WipeFile(FileAction, frozen=True, kw_only=True):
    """An action that somebody adds and declares nothing of."""

    name: ClassVar[str] = "wipe_file"


def call(name: str) -> ObservedCall:
    return ObservedCall(
        name=name,
        arguments={},
        kind="",
        success=True,
        fields={},
        output_hash=b"",
        summary="",
        error="",
    )


def test_what_declares_nothing_writes_and_is_not_repeated() -> None:
    assert WipeFile.writes and not WipeFile.idempotent
    assert with_host_argument(WipeFile, ("a", "b")).writes
    assert can_change_files(call("wipe_file")) and can_change_files(call("tool_of_a_server"))
    assert not is_known_to_look("wipe_file")
    assert "wipe_file" not in SCORE_PRESERVING_ACTIONS


def test_which_actions_write() -> None:
    writing = {name for name in ACTIONS if is_known_to_write(name)}
    assert writing == {
        "run_command", "input_in_session", "create_file", "edit_file", "parse_pdf", "parse_docx",
        "parse_latex", "parse_pptx", "parse_audio", "parse_image", "parse_video",
    }  # fmt: skip
    assert not [name for name in writing if ACTIONS[name].idempotent]
    assert {"think", "eval", "finish"} == SCORE_PRESERVING_ACTIONS
    assert [name for name in ACTIONS if can_change_files(call(name)) != (name in writing)] == [
        "run_command"  # what the command says decides; this one says nothing
    ]


class Link:
    """In place of a connection: notes whether a request may be sent again, and loses it."""

    async def other(self, service: str, ask: Any, kind: type, *, idempotent: bool) -> Any:
        self.idempotent = idempotent

        async def back() -> None: ...

        raise HostAway("there", "the cable was pulled", back, cut=True)


@pytest.mark.parametrize("action", FILE_ACTIONS)
async def test_a_lost_request_is_sent_again_where_that_does_no_harm(
    action: type[FileAction],
) -> None:
    link = Link()
    files = RemoteFileActions(cast(SshHost, SimpleNamespace(link=link)), 1_000)
    values = {"content": "x", "start": 1, "end": 1, "line_number": 1}
    fields = [one.name for one in msgspec.structs.fields(action) if one.required]
    arguments = msgspec.convert({name: values.get(name, "a") for name in fields}, action)
    with pytest.raises(HostAway):
        await files.act(arguments, Stop())
    assert link.idempotent is action.idempotent
    assert not (link.idempotent and action.writes)
