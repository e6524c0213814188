"""Rows of rollouts whose summaries another engine wrote, in other ids than the policy's or none."""

import json
from pathlib import Path

import pytest

from houston_daemon.agent.context_summary_prompt import SUMMARY_SECTIONS
from houston_daemon.engines.script_engine import ScriptEngine
from houston_daemon.training.rows.training_row import RowOptions, TokenRow
from houston_shared.store import step_context
from houston_shared.store.store_reader import Reader
from tests.training.rows.played_rollouts import Acting, Family, Played, Stage
from tests.training.rows.test_trained_answers import turn

TURNS = [turn(number) for number in range(1, 13)]


def summary_samples(stage: Stage, played: Played) -> list[tuple[int, int]]:
    query = "SELECT step, seq FROM samples WHERE rollout = ? AND role = 'summary' ORDER BY seq"
    return [(int(step), int(seq)) for step, seq in stage.rig.query(query, played.id)]


def check_policy_rows(stage: Stage, played: Played, rows: list[TokenRow]) -> None:
    """What the policy was asked and said is in the ledger to the id, summaries or not."""
    query = "SELECT step, seq FROM samples WHERE rollout = ? AND role = 'policy'"
    with Reader(stage.rig.home) as reader:
        for step, seq in stage.rig.query(query, played.id):
            sent = played.engine.answers[("policy", step)].prompt
            assert reader.run(step_context.read_prompt_ids(seq)) == sent
    react = [row for row in rows if row.kind == "react"]
    assert len(react) >= 3 and {row.source for row in react} == {"ledger"}
    assert {span.engine for row in react for span in row.spans} == {"acting"}


@pytest.mark.parametrize("other", ["qwen3", "glm45"])
def test_a_summary_in_another_dialect_is_rendered(
    stage: Stage, family: dict[str, Family], other: str
) -> None:
    played = stage.play(family["qwen3"], TURNS, context=1_300, scribe=family[other])
    rows = stage.rows(played)
    check_policy_rows(stage, played, rows)
    scribe = played.scribe
    assert isinstance(scribe, Acting) and scribe.answers.keys() == {
        ("summary", step) for step, _ in summary_samples(stage, played)
    }
    summaries = [row for row in rows if row.kind == "summary"]
    asked = summary_samples(stage, played)
    assert len(summaries) == len(asked) >= 2
    for row, (step, seq) in zip(summaries, asked, strict=True):
        said = scribe.answers[("summary", step)]
        with Reader(stage.rig.home) as reader:
            assert reader.run(step_context.read_prompt_ids(seq)) == said.prompt, "as it was sent"
        *before, last = row.spans
        assert (last.role, last.engine, last.weight) == ("summary", "scribe", 1.0)
        assert {span.engine for span in before} <= {"acting"}
        text = scribe.tokens.decode(list(row.token_ids[last.start : last.end]))
        assert json.loads(text[text.index("{") : text.rindex("}") + 1]).keys() == {
            *SUMMARY_SECTIONS
        }
        assert row.source == ("ledger" if other == "qwen3" else "rendered")
        if other == "qwen3":
            assert list(row.token_ids[: last.start]) == said.prompt
            first = played.engine.answers[("policy", 1)]
            if step == asked[0][0]:
                whole = [*first.prompt, *first.ids]
                assert said.prompt[: len(first.prompt)] == first.prompt
                assert len(said.prompt) > len(whole), "steps follow, rendered anew"


def test_a_summary_without_ids_is_rendered(
    stage: Stage, family: dict[str, Family], tmp_path: Path
) -> None:
    file = tmp_path / "scribe.jsonl"
    text = json.dumps(dict.fromkeys(SUMMARY_SECTIONS, "as it was"))
    file.write_text(json.dumps({"answers": {"summary": text}}))
    scribe = ScriptEngine(file, "scribe")
    played = stage.play(family["chatml"], TURNS, context=1_300, scribe=scribe)
    rows = stage.rows(played)
    check_policy_rows(stage, played, rows)
    summaries = [row for row in rows if row.kind == "summary"]
    assert len(summaries) == len(summary_samples(stage, played)) >= 2
    for row in summaries:
        last = row.spans[-1]
        assert (row.source, last.engine, last.weight) == ("rendered", "scribe", 1.0)
        assert text in played.engine.tokens.decode(list(row.token_ids[last.start : last.end]))
    assert {row.kind for row in stage.rows(played, RowOptions(roles=("policy",)))} == {"react"}
