"""The screen of policies and training: what is there, how far it is, and what is asked of it."""

from pathlib import Path
from typing import Any

from houston_console.screens.policies_screen import PoliciesScreen
from houston_console.screens.policy_list import PolicyList
from houston_console.widgets.dialogs import ConfirmDialog, QuestionDialog
from houston_daemon.suites.suite_results import write_run
from houston_daemon.training.runs.run_progress import ProgressWriter
from houston_shared import wire
from houston_shared.home import Home
from houston_shared.kept_suite_runs import suites_folder
from houston_shared.store.training_event_bodies import PolicyRegistered
from tests.console.conftest import SMALL, WIDE, LiveStation, Seat, Sit
from tests.support.recorder_client import Station
from tests.unit.shared.test_kept_suite_runs import run as suite_run

PROGRESS = '{"state":"running","step":12,"steps":48,"loss":1.25,"tokens_per_second":640.0}'


def trained(live: Station) -> None:
    """Two policies, a run that goes on, one that failed; the first policy is active."""
    person = live.person()
    person.start()
    for run in ("sft-1", "sft-2", "sft-3"):
        (live.home.path / "training" / run).mkdir(parents=True)
        person.ask(wire.StartTraining(request=run, run=run, base="/models/base"))
    for number in (2, 3):
        register(live, number, run=f"sft-{number - 1}")
    live.recorder.report_training_state("sft-1", "finished")
    live.recorder.report_training_state("sft-2", "running", start=True)
    live.recorder.report_training_state("sft-3", "failed", "memory ran out at step 4")
    progress(live.home, PROGRESS)
    activation = wire.ActivatePolicy(request="a", engine="embedded", policy="policy@2")
    live.recorder.report_activation(person.ask(activation).seq, True)


def register(live: Station, number: int, **fields: Any) -> None:
    """A policy, from the one before."""
    folder = live.home.path / "policies" / f"policy@{number}"
    folder.mkdir(parents=True)
    (folder / "lineage.json").write_text("{}")
    policy = PolicyRegistered(
        by="", name=f"policy@{number}", kind="lora", base="/models/base", base_hash="b",
        hash=str(number), folder=f"policy@{number}", parent=f"policy@{number - 1}", **fields,
    )  # fmt: skip
    live.person().ask(wire.RegisterPolicy(request=f"p{number}", policy=policy))


def progress(home: Home, text: str) -> None:
    (Path(home.path) / "training" / "sft-2" / "progress.json").write_text(text)


async def test_policies_and_runs_are_shown_and_kept_up_to_date(live: LiveStation, sit: Sit) -> None:
    trained(live)
    for size in (WIDE, SMALL):
        progress(live.home, PROGRESS)
        async with sit(live.home, size=size) as seat:
            await seat.press("T")
            assert isinstance(seat.app.screen, PoliciesScreen)
            await seat.until(lambda: "policy@3" in seat.text(PolicyList), "read")
            lines = seat.lines(PolicyList)
            (active,) = [row for row in lines if "policy@2 " in row and "active on" in row]
            assert "active on embedded" in active
            (running,) = [row for row in lines if row.strip().startswith("▶")]
            assert "[████░░░░░░░░░░░░] step 12 of 48" in running
            (failed,) = [row for row in lines if "sft-3" in row]
            assert "memory ran out" in failed
            progress(live.home, PROGRESS.replace("12", "24"))
            await seat.until(lambda: "step 24 of 48" in seat.text(PolicyList), "a trainer's word")
            await seat.press("escape")
            assert seat.app.screen is seat.app.watch_screen


async def test_activating_asks_for_the_engine_and_cancelling_asks_first(
    live: LiveStation, sit: Sit
) -> None:
    trained(live)
    async with sit(live.home) as seat:
        await seat.press("T")
        await seat.until(lambda: "policy@3" in seat.text(PolicyList), "read")
        await seat.press("enter")
        assert isinstance(seat.app.screen, QuestionDialog)
        assert [field.value for field in seat.app.screen.fields] == ["embedded"]
        await seat.press("escape")
        assert _activations(live) == [("policy@2", "active")]
        await seat.press("enter", "enter")
        await seat.until(lambda: len(_activations(live)) == 2, "asked for")
        assert _activations(live)[-1] == ("policy@3", "asked")
        await seat.until(lambda: "is being given policy@3" in seat.text(PolicyList), "shown")
        (seq,) = live.query("SELECT max(seq) FROM activations")[0]
        live.recorder.report_activation(seq, False, "it has no room")
        await seat.app.refresh_from_store()
        await seat.until(lambda: "it has no room" in seat.text(PolicyList), "why it failed")
        await seat.press("Z", "enter")
        await seat.until(lambda: _activations(live)[-1] == ("", "asked"), "taken back")
        while seat.app.screen.query_one(PolicyList).row_at_cursor.run != "sft-2":
            await seat.press("j")
        await seat.press("enter")
        assert "Go to a policy first" in seat.hint()
        await seat.press("ctrl+k")
        assert isinstance(seat.app.screen, ConfirmDialog)
        await seat.press("n")
        assert live.query("SELECT cancelling FROM training_runs WHERE id = 'sft-2'") == [("",)]
        await seat.press("ctrl+k", "y")
        await seat.until(lambda: "is being cancelled" in seat.text(PolicyList), "cancelled")


def _activations(live: LiveStation) -> list[tuple[str, str]]:
    rows = live.query("SELECT policy, state FROM activations ORDER BY seq")
    return [(str(policy), str(state)) for policy, state in rows]


def detail(seat: Seat) -> str:
    return seat.text("#policy-detail")


async def test_what_is_known_of_a_policy_stands_beside_it_and_where_it_is_activated(
    live: LiveStation, sit: Sit
) -> None:
    trained(live)
    folder = suites_folder(live.home) / "word-worlds"
    write_run(folder / "a.json", suite_run("", "1", "0", "0", "0"))
    write_run(folder / "b.json", suite_run("policy@3", "0", "1", "1", "1"))
    for size in (SMALL, (120, 35), (200, 60)):
        async with sit(live.home, size=size) as seat:
            await seat.press("T")
            await seat.until(lambda: "25% → 75%" in detail(seat), "read")
            assert "policy@3" in detail(seat)
            assert "nobody has spoken to a rollout of it" in " ".join(detail(seat).split())
            assert "solved 25% → 75%" in seat.text(PolicyList)
            await seat.press("enter")
            question = seat.app.screen
            assert isinstance(question, QuestionDialog)
            assert "score: word-worlds test: 25% → 75%" in question._text
            assert "obeys: not known" in question._text
            await seat.press("escape", "j")
            await seat.until(lambda: "not evaluated" in detail(seat), "of the next one")


async def test_a_run_that_goes_on_is_followed(live: LiveStation, sit: Sit) -> None:
    trained(live)
    writer = ProgressWriter(live.home.path / "training" / "sft-2")

    def step(number: int, loss: float) -> None:
        writer.step_done(
            step=number, tokens=number, epoch=1, loss=loss, lr=1, grad_norm=1, memory=1
        )

    writer.begin_steps(step=0, steps=48, tokens=0, total=480)
    async with sit(live.home) as seat:
        await seat.press("T")
        await seat.until(lambda: "policy@3" in seat.text(PolicyList), "read")
        while seat.app.screen.query_one(PolicyList).row_at_cursor.run != "sft-2":
            await seat.press("j")
        await seat.until(lambda: "its first step has not ended" in detail(seat), "no step yet")
        step(1, 3.0)
        step(2, 2.5)
        await seat.until(lambda: "loss 3 → 2.5, step 1–2" in detail(seat), "drawn")
        step(3, 1.5)
        await seat.until(lambda: "loss 3 → 1.5, step 1–3" in detail(seat), "a trainer's word")
        await seat.press("tab")
        assert seat.app.screen.query_one("#policy-detail").has_focus
        await seat.press("tab")
        assert seat.app.screen.query_one(PolicyList).has_focus


async def test_versions_that_nothing_happened_with_are_folded(live: LiveStation, sit: Sit) -> None:
    trained(live)
    person = live.person()
    for number in range(4, 11):
        register(live, number, run="sft-9" if number == 10 else "", note=f"rl-1, update {number}")
    activation = wire.ActivatePolicy(request="b", engine="embedded", policy="policy@5")
    live.recorder.report_activation(person.ask(activation).seq, True)
    async with sit(live.home) as seat:
        await seat.press("T")
        await seat.until(lambda: "policy@10" in seat.text(PolicyList), "read")
        listed = seat.text(PolicyList)
        assert "▸ policy@6 to policy@9: 4 versions, none evaluated" in listed
        assert "policy@5" in listed, "what is active is never folded"
        assert "policy@4" in listed, "one alone needs no fold"
        await seat.press("j", "enter")
        await seat.until(lambda: "policy@7 " in seat.text(PolicyList), "unfolded")
        assert "▾ policy@6 to policy@9" in seat.text(PolicyList)
        await seat.press("enter")
        await seat.until(lambda: "policy@7 " not in seat.text(PolicyList), "folded again")
