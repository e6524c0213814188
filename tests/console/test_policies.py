"""The screen of policies and training: what is there, how far it is, and what is asked of it."""

from pathlib import Path

from houston_console.screens.policies_screen import PoliciesScreen, PolicyList
from houston_console.widgets.dialogs import ConfirmDialog, QuestionDialog
from houston_shared import wire
from houston_shared.home import Home
from houston_shared.store.training_event_bodies import PolicyRegistered
from tests.console.conftest import SMALL, WIDE, LiveStation, Sit

PROGRESS = '{"state":"running","step":12,"steps":48,"loss":1.25,"tokens_per_second":640.0}'


def trained(live: LiveStation) -> None:
    """Two policies, a run that goes on, one that failed; the first policy is active."""
    person = live.person()
    person.start()
    for run in ("sft-1", "sft-2", "sft-3"):
        (live.home.path / "training" / run).mkdir(parents=True)
        person.ask(wire.StartTraining(request=run, run=run, base="/models/base"))
    for number in (2, 3):
        folder = live.home.path / "policies" / f"policy@{number}"
        folder.mkdir(parents=True)
        (folder / "lineage.json").write_text("{}")
        policy = PolicyRegistered(
            by="", name=f"policy@{number}", kind="lora", base="/models/base", base_hash="b",
            hash=str(number), folder=f"policy@{number}", run=f"sft-{number - 1}",
            parent=f"policy@{number - 1}",
        )  # fmt: skip
        person.ask(wire.RegisterPolicy(request=f"p{number}", policy=policy))
    live.recorder.report_training_state("sft-1", "finished")
    live.recorder.report_training_state("sft-2", "running", start=True)
    live.recorder.report_training_state("sft-3", "failed", "memory ran out at step 4")
    progress(live.home, PROGRESS)
    activation = wire.ActivatePolicy(request="a", engine="embedded", policy="policy@2")
    live.recorder.report_activation(person.ask(activation).seq, True)


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
