"""Rows of a flow: the planner's answers, id by id as they were sampled, and nothing else."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from houston_daemon.training.rows.training_row import RowOptions
from tests.integration.agent.rig import Rig
from tests.training.rows.played_rollouts import Family, Played, Stage, Turn, copied, families

pytestmark = pytest.mark.timeout(600)
FLOW = 'agent = "flow"'
NAMES = ("chatml", "qwen3", "glm45")


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Family]:
    """Planners of three families."""
    plain = families(tmp_path_factory.mktemp("families"))
    return {
        name: replace(family, name=f"planner-{family.name}", reasoning=False)
        for name, family in plain.items()
    }


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    rig = Rig(tmp_path)
    yield Stage(rig)
    rig.close()


def turns(*endings: str) -> list[Turn]:
    return [
        Turn(f"T{n}t thinks", (f"C{n}c says",), ending)  # type: ignore[arg-type]
        for n, ending in enumerate(endings, 1)
    ]


def spans(stage: Stage, played: Played, options: RowOptions | None = None) -> list[tuple[str, ...]]:
    """Role, weight and text of every span."""
    decode = played.engine.tokens.decode
    return [
        (span.role, str(span.weight), decode(row.token_ids[span.start : span.end]))
        for row in stage.rows(played, options)
        for span in row.spans
    ]


@pytest.mark.parametrize("name", NAMES)
def test_every_answer_of_the_planner_is_trained_as_it_was_sampled(
    stage: Stage, kinds: dict[str, Family], name: str
) -> None:
    played = stage.play(kinds[name], turns("stop", "stop", "letters"), top=FLOW)
    (row,) = stage.rows(played)
    assert row.source == "ledger" and row.dialect == kinds[name].name
    assert [(span.role, span.weight) for span in row.spans] == [("planner", 1.0)] * 4
    for span in row.spans:
        sampled = played.engine.answers["planner", span.step]
        assert list(row.token_ids[: span.start]) == sampled.prompt, "the prompt, id by id"
        assert list(row.token_ids[span.start : span.end]) == sampled.ids
    assert "verifier" in {role for role, _ in played.engine.answers}, "it was asked in between"


def test_what_was_no_action_is_not_trained(stage: Stage, kinds: dict[str, Family]) -> None:
    played = stage.play(kinds["chatml"], turns("stop", "malformed", "cut", "stop"), top=FLOW)
    weights = [(weight, text[:12]) for _, weight, text in spans(stage, played)]
    assert [weight for weight, _ in weights] == ["1.0", "0.0", "0.0", "1.0", "1.0"]
    # What was said before the two that stood is in the ledger, not in a row.
    tries = "SELECT count(*) FROM events WHERE rollout = ? AND part = 'planner.1'"
    assert stage.rig.query(tries, played.id) == [(2,)]


def test_rows_of_another_tokenizer_are_rendered_in_the_planners_form(
    stage: Stage, kinds: dict[str, Family], tmp_path: Path
) -> None:
    family = kinds["qwen3"]
    played = stage.play(family, turns("stop", "stop"), top=FLOW)
    told = spans(stage, played)
    for dialect in ("qwen3", "planner-qwen3"):
        options = RowOptions(
            dialect=dialect, tokenizer=copied(family.tokenizer, tmp_path / dialect)
        )
        assert spans(stage, played, options) == told
    assert '{"thought": "T1t thinks", "action": "noop", "action_input": "C1c says"}' in told[0][2]


@pytest.mark.parametrize(("roles", "count"), [(("planner",), 3), (("policy", "summary"), 0)])
def test_a_role_of_the_flow_is_chosen_like_any_other(
    stage: Stage, kinds: dict[str, Family], roles: tuple[str, ...], count: int
) -> None:
    played = stage.play(kinds["chatml"], turns("stop", "stop"), top=FLOW)
    options = RowOptions(roles=roles)  # type: ignore[arg-type]
    assert len(spans(stage, played, options)) == count
    chats = stage.chats(played, options)
    assert sum(row.trained for row in chats) == count


def test_forks_and_branches_of_a_flow_are_trained_once(
    stage: Stage, kinds: dict[str, Family]
) -> None:
    long = [Turn(f"T{n}t", (f"C{n}c " * 60,)) for n in range(1, 7)]
    played = stage.play(kinds["chatml"], long, top=FLOW, context=1_200)
    rows = stage.rows(played)
    assert {row.kind for row in rows} == {"react", "summary"}, "it forked"
    trained = [(span.role, span.step) for row in rows for span in row.spans if span.weight]
    assert len(trained) == len(set(trained)) and ("planner", 6) in trained
    branch = stage.branch(played, 2, turns("stop", "stop", "stop"))
    beside = [played.id, branch.id]
    both = [
        (row.rollout, span.step)
        for one in (played, branch)
        for row in stage.rows(one, beside=beside)
        for span in row.spans
        if span.weight and span.role == "planner"
    ]
    assert (branch.id, 1) not in both and (branch.id, 3) in both
