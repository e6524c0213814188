"""The form of the work comes first, and a task may have a scale, data and an environment."""

from pathlib import Path
from typing import Any
from venv import create

import pytest

from houston_daemon.environments.environment_protocol import BudgetStatus, Stop
from houston_daemon.environments.workstation.evaluator import Malformed, read_score, scaled
from houston_shared.task import BudgetSettings
from houston_shared.task_tables import DataSettings, EvaluationSettings
from tests.integration.environments.conftest import MakeStation

RAW = 'import json; print(json.dumps({"raw_score": 0.6, "overall_score": 3}))'
CHECK = 'test -s "$WORKSPACE/answer.txt" || { echo "answer.txt is empty"; echo sly >&2; exit 1; }'


def evaluate(**more: Any) -> EvaluationSettings:
    return EvaluationSettings(command="python3 evaluate.py", seconds=20, **more)


@pytest.mark.parametrize(
    ("raw", "baseline", "reference", "points"),
    [
        (0.5, 0.5, 0.9, 0),
        (0.9, 0.5, 0.9, 100),
        (0.6, 0.5, 0.9, 25),
        (0.1, 0.5, 0.9, 0),
        (5, 0.5, 0.9, 100),
        (2.5, 3.0, 2.0, 50),  # a loss: less is better
        (4.0, 3.0, 2.0, 0),
        (1e300, -1e300, 1e300, 100),
    ],
)
def test_the_scale_is_linear_and_clipped(
    raw: float, baseline: float, reference: float, points: float
) -> None:
    assert scaled(raw, baseline, reference) == pytest.approx(points)


@pytest.mark.parametrize("output", ['{"overall_score": 50}', '{"raw_score": 1e999}', "[1]", "{"])
def test_a_task_with_a_scale_needs_a_raw_score(output: str) -> None:
    with pytest.raises(Malformed):
        read_score(output.encode(), scale=evaluate(baseline=0.0, reference=1.0))


async def test_work_of_the_wrong_form_is_not_scored_and_costs_nothing(
    make_station: MakeStation,
) -> None:
    form = evaluate(required=("answer.txt", "model/weights"), format=CHECK)
    station = await make_station(RAW, evaluate=form)
    missing = await station("eval")
    assert "lacks answer.txt, model/weights" in missing.text
    await station("run_command", command="ln -s /etc/passwd answer.txt")
    linked = await station("eval")
    assert "lacks answer.txt" in linked.text and "that lead out of it do not count" in linked.text
    await station(
        "run_command", command="rm answer.txt; mkdir -p model; touch model/weights answer.txt"
    )
    empty = await station("eval")
    assert "The format of the work is wrong: answer.txt is empty" in empty.text
    assert "sly" not in empty.text
    assert empty.fields["detail"] == "sly\n"
    for one in (missing, linked, empty):
        assert (one.fields["state"], one.fields["counted"]) == ("format", False)
        assert "No submission was used; 2 submissions left" in one.text
    await station("run_command", command="echo 42 > answer.txt")
    wrong = await station("eval")  # now the evaluator itself gives a raw score without a scale
    assert wrong.fields["overall_score"] == 3


async def test_a_raw_score_becomes_points(make_station: MakeStation) -> None:
    station = await make_station(RAW, evaluate=evaluate(baseline=0.5, reference=0.9))
    result = await station("eval")
    assert (result.fields["overall_score"], result.fields["raw_score"]) == (25, 0.6)
    assert "overall_score: 25 of 100" in result.text
    assert "raw_score: 0.6" in result.text


async def test_time_for_evaluations_is_limited_in_total(make_station: MakeStation) -> None:
    budget = BudgetSettings(evaluations=9, evaluation_seconds=2.0)
    station = await make_station("import time; time.sleep(60)", budget=budget, evaluate=evaluate())
    call = station.environment.check(station.call("eval"))
    for used, says in ((1.4, "longer than 0.6 s"), (2.0, "The time that evaluations may take")):
        budget_status = BudgetStatus(5, 10, 1_000.0, 0, used)
        result = await station.environment.act(call, budget_status, Stop())
        assert not result.success
        assert says in result.text


async def test_a_format_check_that_hangs_is_ended(make_station: MakeStation) -> None:
    slow = EvaluationSettings(command="python3 evaluate.py", seconds=0.5, format="sleep 60")
    station = await make_station(RAW, evaluate=slow)
    result = await station("eval")
    assert (result.fields["state"], result.fields["counted"]) == ("failed", False)
    assert "longer than 0.5 s" in result.text


async def test_data_is_read_only_beside_the_workspace(
    make_station: MakeStation, tmp_path: Path
) -> None:
    (tmp_path / "task/words").mkdir(parents=True)
    (tmp_path / "task/words/list.txt").write_text("one two\n")
    (tmp_path / "home/key").write_text("sk-secret")
    mounts = {"words": "words", "all": str(tmp_path)}
    see = (
        "import json, pathlib; n = len(pathlib.Path('/data/words/list.txt').read_text().split());"
        "print(json.dumps({'overall_score': n}))"
    )
    station = await make_station(see, data=DataSettings(mounts=mounts))
    command = "cat /data/words/list.txt; touch /data/words/x; ls -A /data/all/home; echo end"
    said = (await station("run_command", command=command)).text
    assert "one two" in said
    assert "Read-only file system" in said
    assert "key" not in said, "what is hidden stays so below a mount"
    assert (await station("eval")).fields["overall_score"] == 2


async def test_an_environment_is_active_in_every_session(
    make_station: MakeStation, tmp_path: Path
) -> None:
    venv = tmp_path / "task" / "venv"
    create(venv)
    (venv / "bin/own-tool").write_text("#!/bin/sh\necho mine\n")
    (venv / "bin/own-tool").chmod(0o755)
    where = "import json, sys; print(json.dumps({'overall_score': 1, 'prefix': sys.prefix}))"
    station = await make_station(where, activate="venv")
    for session in ("main", "other"):
        command = "own-tool; python3 -c 'import sys; print(sys.prefix)'; echo $VIRTUAL_ENV"
        said = (await station("run_command", command=command, session_id=session)).text
        assert f"mine\n{venv}\n{venv}" in said
    await station("run_command", command=f"ln -s {venv}/bin/own-tool mine")
    assert (await station("eval")).fields["prefix"] == str(venv)
