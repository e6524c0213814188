"""What `houston policy list` and `show` and `houston train show` say to decide by, known or not."""

from pathlib import Path
from typing import Any

import pytest

from houston_daemon.suites.suite_results import write_run
from houston_daemon.training.runs.run_progress import ProgressWriter
from houston_shared import wire
from houston_shared.kept_suite_runs import suites_folder
from houston_shared.policy_and_run_files import training_run_folder
from houston_shared.store.training_event_bodies import PolicyRegistered
from tests.integration.commands.conftest import Desk
from tests.integration.commands.test_people_commands import Shell
from tests.integration.commands.test_people_commands import houston as houston
from tests.unit.shared.test_kept_suite_runs import run as suite_run


def register(desk: Desk, number: int, **fields: Any) -> None:
    """A policy of the home, from the one before."""
    name = f"policy@{number}"
    folder = desk.station.home.path / "policies" / name
    folder.mkdir(parents=True)
    (folder / "lineage.json").write_text("{}")
    given: dict[str, Any] = {
        "by": "", "name": name, "kind": "lora", "base": "/models/base", "base_hash": "b",
        "hash": str(number), "folder": name, "run": "sft-1", "parent": f"policy@{number - 1}",
    }  # fmt: skip
    policy = PolicyRegistered(**{**given, **fields})
    person = desk.station.person()
    answer = person.ask(wire.RegisterPolicy(request=name, policy=policy))
    assert isinstance(answer, wire.RequestStored), answer


def start_training(desk: Desk, run: str = "sft-1") -> Path:
    folder = training_run_folder(desk.station.home, run)
    folder.mkdir(parents=True)
    person = desk.station.person()
    person.ask(wire.StartTraining(request=run, run=run, base="/models/base"))
    return folder


def activate(desk: Desk, policy: str) -> None:
    message = wire.ActivatePolicy(request=policy, engine="embedded", policy=policy)
    seq = desk.station.person().ask(message).seq
    desk.station.recorder.report_activation(seq, True)


def test_what_is_not_known_is_said_with_what_finds_it_out(desk: Desk, houston: Shell) -> None:
    start_training(desk)
    register(desk, 2)
    listed = houston("policy", "list")
    assert listed.count("not evaluated") == 2
    assert listed.count("not spoken to") == 2
    shown = houston("policy", "show", "policy@2")
    assert "not evaluated; houston evaluate SUITE --before base --policy policy@2" in shown
    assert "nobody has spoken to a rollout of it" in shown
    assert "none of it has ended with a score" in shown
    assert "the folder of sft-1 does not say" in shown
    assert "no rows were held out (houston train sft --held-out 0.2)" in shown
    assert "none yet: its first step has not ended" in shown
    (line,) = houston.json("policy", "show", "policy@2")
    known = [
        line[key] for key in ("evaluations", "obedience", "common_tasks", "curves", "held_out")
    ]
    assert known == [[], None, None, [], None]
    assert "not known: it was trained elsewhere" in _imported(desk, houston)


def test_only_what_an_engine_has_now_is_active(desk: Desk, houston: Shell) -> None:
    start_training(desk)
    for number in (2, 3):
        register(desk, number)
        activate(desk, f"policy@{number}")
    assert "given it, replaced since (" in houston("policy", "show", "policy@2")
    assert "given it, active (" in houston("policy", "show", "policy@3")


def _imported(desk: Desk, houston: Shell) -> str:
    register(desk, 3, run="", note="from a friend")
    return houston("policy", "show", "policy@3")


def test_curves_rows_and_held_out_loss_of_the_run_that_made_it(desk: Desk, houston: Shell) -> None:
    folder = start_training(desk)
    writer = ProgressWriter(folder)
    writer.begin_steps(step=0, steps=4, tokens=0, total=40)
    for step in range(1, 5):
        writer.step_done(
            step=step, tokens=10 * step, epoch=1, loss=3.0 - step / 2, lr=1, grad_norm=1, memory=1
        )
    (folder / "manifest.json").write_text(
        '{"rows": 12, "counts": {"unit": "tokens", "trained": 900, "untrained":'
        ' {"mask: judge": 5}}, "sources": [{}, {}]}'
    )
    (folder / "result.json").write_text(
        '{"held_out_before": 2.5, "held_out_after": 1.25, "held_out_rows": 3}'
    )
    register(desk, 2)
    for words in (("policy", "show", "policy@2"), ("train", "show", "sft-1")):
        shown = houston(*words)
        assert "loss 2.5 → 1, step 1–4" in shown
        assert any(0x2800 < ord(cell) < 0x2900 for cell in shown), "and is drawn"
        assert "12 rows of 2 rollouts, 900 tokens trained" in shown
        assert "5 not trained: mask: judge 5" in shown
        assert "loss 2.5000 → 1.2500 on 3 rows" in shown
        (line,) = houston.json(*words)
        assert line["curves"][0]["points"][-1] == [4, 1.0]
        assert line["held_out"] == {"before": 2.5, "after": 1.25, "rows": 3}
        assert line["data"]["trained"] == 900


def test_a_version_of_an_update_is_shown_with_the_run_that_made_it(
    desk: Desk, houston: Shell
) -> None:
    start_training(desk, "echo-1")
    register(desk, 2, run="", note="echo-1, update 7")
    shown = houston("policy", "show", "policy@2")
    assert "echo-1, update 7; rows and curves are of the whole run" in shown


def test_scores_before_and_after_come_from_results_of_suites(desk: Desk, houston: Shell) -> None:
    start_training(desk)
    register(desk, 2)
    folder = suites_folder(desk.station.home) / "word-worlds"
    write_run(folder / "a.json", suite_run("", "1", "0", "0", "0"))
    write_run(folder / "b.json", suite_run("policy@2", "0", "1", "1", "1"))
    assert "25% → 75%" in houston("policy", "list")
    shown = houston("policy", "show", "policy@2")
    assert "word-worlds test: 25% → 75% [" in shown
    assert "solved of 4 tasks (+3 −1), score 25 → 75, failed calls 2.0 → 2.0" in shown
    assert "houston evaluate --compare word-worlds/a word-worlds/b" in shown
    (line,) = houston.json("policy", "show", "policy@2")
    (evaluation,) = line["evaluations"]
    assert (evaluation["before"]["policy"], evaluation["gained"]) == ("base", 3)


README, VAGUE = "Read README.md.", "Be more careful."
OBEYED = [
    pytest.param(README, {}, 4, (1, 1, 0), id="nothing speaks against it"),
    pytest.param(README, {3: "guidance_ignored"}, 4, (1, 0, 0), id="seen to be ignored"),
    pytest.param(README, {}, 3, None, id="too early to tell"),
    pytest.param(README, {2: "guidance_ignored"}, 2, (1, 0, 0), id="told at once"),
    pytest.param(README, {3: "error,no_guidance_ignored"}, 4, (1, 1, 0), id="another signal"),
    pytest.param(VAGUE, {}, 4, (1, 0, 1), id="nothing in the words can be looked for"),
    pytest.param(VAGUE, {3: "guidance_ignored"}, 4, (1, 0, 0), id="ignored, whatever the words"),
]


@pytest.mark.parametrize(("text", "signals", "steps", "expected"), OBEYED)
def test_obedience_is_counted_by_policy(
    text: str,
    signals: dict[int, str],
    steps: int,
    expected: tuple[int, int, int] | None,
    desk: Desk,
    houston: Shell,
) -> None:
    """Guidance is heard at step 1; `steps` close in all. expected: heard, followed, unchecked."""
    start_training(desk)
    register(desk, 2)
    activate(desk, "policy@2")
    person = desk.station.person()
    (rollout,) = person.start(engine="embedded")
    worker = desk.station.worker(rollout)
    person.guide(rollout, text)
    for step in range(1, steps + 1):
        names = tuple(signals.get(step, "").split(",")) if step in signals else ()
        worker.step(step, attention=names, reasons=dict.fromkeys(names, "why"))
    by_policy = {line["policy"]: line["obedience"] for line in houston.json("policy", "list")}
    heard, followed, unchecked = expected or (0, 0, 0)
    counts = {"heard": heard, "followed": followed, "cannot_be_checked": unchecked}
    assert by_policy == {"policy@1": None, "policy@2": counts if expected else None}
    listed, shown = houston("policy", "list"), houston("policy", "show", "policy@2")
    if unchecked:
        assert "1 unchecked" in listed and "0 of" not in listed
        assert "1 cannot be checked: nothing in the words can be looked for" in shown
    elif expected:
        assert f"{followed} of 1" in listed
        assert f"{100 * followed}% followed, {1 - followed} of" in shown
