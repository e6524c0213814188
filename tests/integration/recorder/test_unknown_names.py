"""The recorder refuses what is not there with one code, that of every command that names it."""

from collections.abc import Callable

import pytest

from houston_shared import wire
from houston_shared.errors import ExitCode
from tests.support.recorder_client import Station

MESSAGES: dict[str, Callable[[str], wire.ControlRequest]] = {
    "a rollout to guide": lambda _: wire.Guide(id="a", rollout="nope", text="x"),
    "a rollout to branch": lambda _: wire.BranchRollout(request="b", rollout="nope", step=1),
    "a step to branch from": lambda id: wire.BranchRollout(request="b", rollout=id, step=9),
    "a step to mark": lambda id: wire.BookmarkStep(rollout=id, step=9),
    "a step to judge": lambda id: wire.GiveVerdicts(
        request="v", rollout=id, steps=(wire.JudgedSteps(first=9, last=9, verdict="mask"),)
    ),
    "guidance to edit": lambda _: wire.EditGuidance(id="nope", revision=1, text="x"),
    "guidance to withdraw": lambda _: wire.WithdrawGuidance(id="nope"),
    "a draft to turn down": lambda _: wire.RejectDraft(id="nope"),
    "a draft to say": lambda id: wire.Guide(id="a", rollout=id, text="x", draft="nope"),
    "a policy": lambda _: wire.ActivatePolicy(request="p", engine="tiny", policy="nope@2"),
    "a training run": lambda _: wire.CancelTraining(run="sft-nope"),
}


@pytest.mark.parametrize("named", MESSAGES)
def test_what_is_not_there_is_refused_with_its_code(named: str, station: Station) -> None:
    worker, person = station.working(), station.person()
    worker.step(1)
    denied = person.ask(MESSAGES[named](worker.rollout))
    assert isinstance(denied, wire.Denied), denied
    assert denied.code == ExitCode.NOT_FOUND, denied.cause


def test_a_rollout_without_a_stored_prompt_has_no_branches(station: Station) -> None:
    """Only a home made by other means has one: a worker stores the prompt first."""
    worker, person = station.working(), station.person()
    worker.step(1)
    assert station.query("SELECT head_seq FROM rollouts") == [(None,)]
    denied = person.ask(wire.BranchRollout(request="b", rollout=worker.rollout, step=1))
    assert isinstance(denied, wire.Denied) and "no stored prompt" in denied.cause
    assert station.recorder.status(60.0)
