"""What people are told of a training run."""

import msgspec
import pytest

from houston_shared.store.policy_queries import TrainingRunRow, training_run_json

RUN = TrainingRunRow(
    id="sft-1", kind="sft", state="finished", reason="", alone=0, cancelling="", policy="word@2",
    starts=1, by="person:ann", seq=1, queued_at=0, started_at=0, ended_at=1, last_seq=2,
)  # fmt: skip


@pytest.mark.parametrize(
    ("id", "kind", "algorithm"),
    [
        pytest.param("dapo-20261128-070323-1e5f", "dapo", "dapo", id="DAPO"),
        pytest.param("grpo-20261128-070323-1e5f", "dapo", "grpo", id="GRPO"),
        pytest.param("echo-20261128-070323-1e5f", "dapo", "echo", id="ECHO"),
        pytest.param("critic-20261128-070323-1e5f", "echo", "critic", id="a critic, by people"),
        pytest.param("prm-20261128-070323-1e5f", "prm", "prm", id="process rewards"),
        pytest.param("echo-of-mine", "sft", "sft", id="SFT under a name that misleads"),
        pytest.param("nightly", "dapo", "dapo", id="a name that says nothing"),
    ],
)
def test_a_run_says_what_it_is_trained_by(id: str, kind: str, algorithm: str) -> None:
    run = msgspec.structs.replace(RUN, id=id, kind=kind)
    assert run.algorithm == algorithm
    assert training_run_json(run, None)["kind"] == algorithm
