"""Which recorded steps are states of a run, and which decisions count as actions there."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from houston_daemon.agent.flow.verifier import Verifier
from houston_daemon.engines.engine_protocol import EngineSample
from houston_daemon.prompts.model_dialects import choose_dialect
from houston_daemon.training.rl.recorded_states import StateKey, list_states, read_state
from houston_shared.errors import ConfigurationError
from houston_shared.records import ToolCall, Verification
from houston_shared.store.store_reader import Reader
from tests.integration.agent.rig import Rig
from tests.training.rows.played_rollouts import Family, Played, Stage, Turn, copied, families


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    rig = Rig(tmp_path)
    yield Stage(rig)
    rig.close()


@pytest.fixture(scope="module")
def chatml(tmp_path_factory: pytest.TempPathFactory) -> Family:
    return families(tmp_path_factory.mktemp("tokenizer"))["chatml"]


def states(stage: Stage, played: Sequence[Played], tokenizer: str) -> list[StateKey]:
    ids = [each.id for each in played]
    with Reader(stage.rig.home) as reader:
        return list_states(reader, ids, stage.rig.home.path / "suites", Path(tokenizer))


def test_steps_in_the_ids_of_another_tokenizer_are_refused_by_name(
    stage: Stage, chatml: Family, tmp_path: Path
) -> None:
    other = replace(chatml, tokenizer=copied(chatml.tokenizer, tmp_path / "other"))
    own, foreign = (stage.play(each, [Turn("T1t", ("C1c",))]) for each in (chatml, other))
    same = shutil.copy(chatml.tokenizer, tmp_path / "tokenizer.json")
    assert states(stage, [own], str(same)) == [StateKey(own.id, 1), StateKey(own.id, 2)]
    with pytest.raises(ConfigurationError, match=f"The steps of {foreign.id} are ids of") as said:
        states(stage, [own, foreign], str(same))
    assert "houston suite run" in said.value.next


class Decided(NamedTuple):
    """An action at a step of three, in a flow."""

    step: int
    action: str
    sound: bool
    answered: bool = False
    """Whether the verifier says after each step that the question is answered."""


DECIDED = {
    "at the first step any action": Decided(1, "noop", True),
    "at the last step none but the answer": Decided(3, "noop", False),
    "at the last step the answer": Decided(3, "finish", True),
    "before the verifier's yes any action": Decided(1, "noop", True, True),
    "after the verifier's yes none but the answer": Decided(2, "noop", False, True),
    "after the verifier's yes the answer": Decided(2, "finish", True, True),
}


@pytest.mark.parametrize("name", DECIDED)
def test_a_decision_is_an_action_where_the_flow_would_have_taken_it(
    stage: Stage, chatml: Family, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    decided = DECIDED[name]

    async def verdict(*_: Any) -> Verification:
        return Verification(decided.answered, "why")

    monkeypatch.setattr(Verifier, "ask", verdict)
    planner = replace(chatml, name=f"planner-{chatml.name}")
    turns = [Turn(f"T{number}t", (f"C{number}c",)) for number in (1, 2)]
    played = stage.play(planner, turns, top='agent = "flow"')
    with Reader(stage.rig.home) as reader:
        state = read_state(reader, StateKey(played.id, decided.step))
    arguments = {"text": "x"} if decided.action == "noop" else {"reason": "x"}
    call = ToolCall(id=f"{decided.step}.0", name=decided.action, arguments=arguments)
    pieces = choose_dialect(planner.name).assistant("why", [call])[:-1]
    said = "".join(piece.text for piece in pieces)
    assert state.decision(EngineSample(said, "stop")).sound is decided.sound
