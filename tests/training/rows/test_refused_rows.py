"""What rows cannot be made of is refused in a sentence; what is not over yet is left out."""

from dataclasses import replace
from pathlib import Path

import pytest

from houston_daemon.training.rows.training_row import RowOptions
from houston_shared import wire
from houston_shared.errors import ConfigurationError, HoustonError
from tests.support.small_tokenizer import small_tokenizer
from tests.training.rows.played_rollouts import Acting, Family, Played, Stage, Turn
from tests.training.rows.test_trained_answers import turn


def scripted(stage: Stage, family: Family, name: str) -> Played:
    """A rollout by an engine without token ids."""
    script = [
        {"thought": f"T{n}t", "calls": [{"name": "noop", "arguments": {"text": f"A{n}.0a"}}]}
        for n in range(1, 5)
    ]
    rollout = stage.rig.rollout(script, name=name)
    stage.rig.run(rollout)
    return Played(rollout, Acting(stage.rig, family, (), rollout))


def test_an_engine_without_ids_needs_a_dialect_and_a_tokenizer(
    stage: Stage, family: dict[str, Family]
) -> None:
    mine = family["glm45"]
    played = scripted(stage, mine, "scripted")
    for options in (
        RowOptions(),
        RowOptions(dialect="glm45"),
        RowOptions(tokenizer=mine.tokenizer),
    ):
        with pytest.raises(ConfigurationError, match="engine without token ids") as refusal:
            stage.rows(played, options)
        assert "dialect" in refusal.value.next
    (row,) = stage.rows(played, RowOptions(dialect="glm45", tokenizer=mine.tokenizer))
    assert row.source == "rendered"
    assert [span.step for span in row.spans if span.weight] == [1, 2, 3, 4, 5]
    (chat,) = stage.chats(played)
    assert chat.trained == 5, "messages need neither"


def test_a_dialect_needs_a_tokenizer_of_its_family(
    stage: Stage, family: dict[str, Family], tmp_path: Path
) -> None:
    played = stage.play(family["chatml"], [turn(1)])
    other = Path(small_tokenizer(tmp_path)).read_text().replace("<|observation|>", "<|other|>")
    (tmp_path / "tokenizer.json").write_text(other)
    with pytest.raises(ConfigurationError, match=r"no token <\|observation\|>"):
        stage.rows(played, RowOptions(dialect="glm45", tokenizer=str(tmp_path)))
    with pytest.raises(ConfigurationError, match="no tokenizer file"):
        stage.rows(played, RowOptions(tokenizer=str(tmp_path / "nowhere.json")))
    with pytest.raises(ConfigurationError, match="no dialect 'klingon'"):
        stage.rows(played, RowOptions(dialect="klingon"))


@pytest.mark.parametrize("kind", ["sample", "result", "observation"])
@pytest.mark.parametrize("how", ["all", "one word", "ids"])
def test_an_erased_step_is_refused(
    stage: Stage, family: dict[str, Family], kind: str, how: str
) -> None:
    played = stage.play(family["chatml"], [turn(n) for n in range(1, 4)])
    branch = stage.branch(played, 1, [turn(12)])
    seq = stage.rig.query(
        "SELECT seq FROM events WHERE rollout = ? AND step = 2 AND kind = ?", played.id, kind
    )[0][0]
    word = {"sample": "A2.0a", "result": "O2.0o", "observation": "step 2"}[kind]
    stage.rig.ask(
        wire.EraseBodies(
            rollout=played.id,
            seqs=(seq,),
            text=word if how == "one word" else "",
            ids=how == "ids",
        )
    )
    if how == "ids" and kind != "sample":
        assert stage.rows(played), "there were none in it"
        return
    for build in (stage.rows, stage.chats):
        with pytest.raises(HoustonError, match=f"Step 2 of rollout {played.id} was erased"):
            build(played)
    assert stage.rows(branch), "it shares the first step only"


def test_an_erased_summary_and_a_broken_chain_are_refused(
    stage: Stage, family: dict[str, Family]
) -> None:
    played = stage.play(family["chatml"], [turn(n) for n in range(1, 13)], context=1_300)
    (seq, step), *_ = stage.rig.query(
        "SELECT sample_seq, step FROM forks WHERE rollout = ? ORDER BY number", played.id
    )
    stage.rig.ask(wire.EraseBodies(rollout=played.id, seqs=(seq,)))
    with pytest.raises(HoustonError, match=f"Step {step} of rollout"):
        stage.rows(played)


def test_a_step_that_is_not_closed_is_not_used(stage: Stage, family: dict[str, Family]) -> None:
    turns = [turn(1), turn(2), replace(turn(3), ending="acts")]
    played = stage.play(family["qwen3"], turns, until_it_dies=True)
    assert stage.rig.query("SELECT max(step) FROM steps WHERE rollout = ?", played.id) == [(3,)]
    (row,) = stage.rows(played)
    assert [span.step for span in row.spans] == [1, 2]
    (chat,) = stage.chats(played)
    assert max(message.step or 0 for message in chat.messages) == 2
    stage.go_on(played)
    (row,) = stage.rows(played)
    assert [span.step for span in row.spans if span.weight] == [1, 2, 3, 4]


def test_a_rollout_that_has_not_begun_has_no_rows(stage: Stage, family: dict[str, Family]) -> None:
    rollout = stage.rig.rollout([{"calls": []}], name="queued")
    played = Played(rollout, Acting(stage.rig, family["chatml"], (), rollout))
    assert stage.rows(played) == []
    assert stage.chats(played) == []


def test_a_rollout_without_a_sandbox_is_marked_in_every_row(
    stage: Stage, family: dict[str, Family]
) -> None:
    top = "sandbox = 'none'\ndomain = 'data-filtering'"
    plain = stage.play(family["chatml"], [turn(1)])
    open_one = stage.play(family["chatml"], [turn(1), Turn("T2t", ("A2.0a",))], top=top)
    for build in (stage.rows, stage.chats):
        assert {row.provenance for row in build(plain)} == {"sandbox"}
        assert {row.provenance for row in build(open_one)} == {"none"}
        assert {row.domain for row in build(open_one)} == {"data-filtering"}
