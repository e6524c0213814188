"""A rollout whose summaries another engine writes, and a worker that dies between them."""

import json
from typing import Any

import pytest

from houston_daemon.agent.context_summary_prompt import SUMMARY_SECTIONS
from houston_daemon.training.rows.row_builder import build_token_rows
from houston_daemon.training.rows.training_row import RowOptions
from houston_shared.records import RoleEngine
from houston_shared.store import rollout_queries, step_context
from houston_shared.store.store_reader import Reader
from tests.integration.agent.rig import Cut, Rig
from tests.support.small_tokenizer import small_tokenizer
from tests.support.station import Station

pytestmark = pytest.mark.timeout(600)

STEPS = [
    {"thought": f"t{n}", "calls": [{"name": "noop", "arguments": {"text": f"{n} " * 400}}]}
    for n in range(4)
] + [{"thought": "nothing", "calls": []}]
TASK = """
[budget]
context_tokens = 1500
answer_tokens = 64
[sampling]
temperature = 0.9
[agent.summary]
temperature = 0.1
answer_tokens = 50
"""
SUMMARY = json.dumps(dict.fromkeys(SUMMARY_SECTIONS, "as it was"))


def scribe(rig: Rig) -> dict[str, RoleEngine]:
    file = rig.folder / "scribe.jsonl"
    file.write_text(json.dumps({"answers": {"summary": SUMMARY}}))
    settings = {"kind": "script", "path": str(file)}
    return {"summary": RoleEngine(engine="scribe", engine_settings=settings)}


def played(rig: Rig, name: str) -> str:
    rollout = rig.rollout(STEPS, task=TASK, name=name, role_engines=scribe(rig))
    rig.run(rollout)
    return rollout


def samples(rig: Rig, rollout: str) -> set[tuple[Any, ...]]:
    found = rig.query("SELECT DISTINCT role, engine FROM samples WHERE rollout = ?", rollout)
    return set(found)


def test_each_sample_says_its_role_engine_and_how_it_was_drawn(rig: Rig) -> None:
    rollout = played(rig, "whole")
    assert samples(rig, rollout) == {("policy", "script"), ("summary", "scribe")}
    bodies = [row[4] for row in rig.journal(rollout) if row[3] == "sample"]
    drawn = {(body["role"], body["parameters"].get("temperature")) for body in bodies}
    assert drawn == {("policy", 0.9), ("summary", 0.1)}
    forks = rig.query("SELECT step, mechanical FROM forks WHERE rollout = ?", rollout)
    assert forks and not any(mechanical for _, mechanical in forks)
    with Reader(rig.home) as reader:
        step = forks[-1][0]
        around = reader.run(step_context.read_context_surroundings(rollout, step))
        assert {one.by for one in around.summarised} == {"scribe"}
        assert step_context.read_context(reader, rollout, step).parent is None, "another's words"
        row = reader.run(rollout_queries.find_rollout(rollout))
    assert rollout_queries.role_engines(row) == {"summary": {"engine": "scribe", "policy": ""}}


def test_a_worker_that_dies_around_a_summary_changes_nothing(rig: Rig) -> None:
    whole = played(rig, "whole")
    told = rig.journal(whole)
    (first, *_) = (at for at, row in enumerate(told, 1) if row[2] == "summary.1")
    for at in (first, first + 1):
        rollout = rig.rollout(STEPS, task=TASK, name=f"cut-{at}", role_engines=scribe(rig))
        cut = Cut(rig, at, "after")
        worker = rig.work(rollout, cut.endpoint)
        assert cut.reached.wait(60)
        rig.kill(worker, rollout)
        cut.close()
        assert cut.message == ("StoreSample" if at == first else "StoreFork")
        rig.run(rollout)
        assert rig.journal(rollout) == told
        parents = "SELECT step, role, parent_seq IS NULL FROM samples WHERE rollout = ?"
        assert rig.query(parents, rollout) == rig.query(parents, whole)


def test_its_rows_say_who_wrote_what(rig: Rig) -> None:
    rollout = played(rig, "whole")
    options = RowOptions(tokenizer=small_tokenizer(rig.folder), dialect="hermes")
    with Reader(rig.home) as reader:
        rows = list(build_token_rows(reader, rollout, options))
    spans = [span for row in rows for span in row.spans]
    assert {(span.role, span.engine, span.policy) for span in spans} == {
        ("policy", "script", ""),
        ("summary", "scribe", ""),
    }
    summaries = [row for row in rows if row.kind == "summary"]
    assert summaries and all(row.spans[-1].weight == 1 for row in summaries)


@pytest.mark.slow
def test_a_daemon_that_is_killed_goes_on_with_all_engines(station: Station) -> None:
    """Through the worker of short rollouts, which is told of a role's engine as of its own."""
    station.home.mkdir()
    (station.folder / "scribe.jsonl").write_text(json.dumps({"answers": {"summary": SUMMARY}}))
    (station.home / "houston.toml").write_text(
        f'[engines.scribe]\nkind = "script"\npath = "{station.folder}/scribe.jsonl"\n'
    )
    task = station.folder / "task.toml"
    head = 'name = "probe"\ninstructions = "Do it."\nenvironment = "null"\n'
    task.write_text(head + TASK + 'engine = "nobody"\n')
    script = station.script([{**step, "delay": 0.3} for step in STEPS])
    station.start()
    refused = station.run("rollout", "start", str(task), "--engine", script, code=78).stderr
    assert "`agent.summary.engine`: There is no engine 'nobody'" in refused
    task.write_text(head + TASK + 'engine = "scribe"\n')
    (rollout,) = station.rollout(task, script)
    forked = "SELECT 1 FROM forks WHERE rollout = ?"
    station.until(lambda: station.query(forked, rollout), 60, "it forks")
    station.kill_daemon()
    station.start()
    assert station.ended(rollout)["state"] == "finished"
    shown = station.show(rollout)
    assert shown["role_engines"] == {"summary": {"engine": "scribe", "policy": ""}}
    assert "scribe" in station.run("rollout", "show", rollout).stdout
    assert {step["engine"] for step in station.steps(rollout)} == {"script"}
    said = "SELECT DISTINCT role, engine FROM samples WHERE rollout = ?"
    assert set(station.query(said, rollout)) == {("policy", "script"), ("summary", "scribe")}
    assert not station.query(f"{forked} AND mechanical", rollout)
