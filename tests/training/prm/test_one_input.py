"""A process reward model reads the same text of a decision everywhere: labels, training, reward,
live."""

from collections.abc import Sequence
from pathlib import Path

from houston_daemon.training.credit.group_advantages import ScoredRollout
from houston_daemon.training.prm import prm_run
from houston_daemon.training.prm.label_session import read_decisions
from houston_daemon.training.prm.prm_scorer import encode_text, load_tokenizer
from houston_daemon.training.rl.process_rewards import ProcessRewards
from houston_daemon.training.rl.rollout_groups import GroupOutcome, RolloutGroup
from houston_shared.store.store_reader import Reader
from tests.support.recorder_client import Station
from tests.training.prm.test_live_scores import Scoring, act, begun


class Listener:
    """Scores nothing and keeps what it was given."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def score(self, texts: Sequence[str]) -> list[float]:
        self.texts += texts
        return [0.5] * len(texts)


def test_labels_training_reward_and_live_scores_read_the_same_text(
    station: Station, tmp_path: Path
) -> None:
    worker = begun(station)
    for step in range(1, 20):  # more than are told
        if step == 7:
            act(worker, step, calls=(), malformed="no call")
        else:
            act(worker, step)
    scoring = Scoring(station)
    scoring.rounds()
    (live,) = scoring.models

    group = RolloutGroup(
        update=0, batch=0, split="train", index=0, policy="base", rollouts=(worker.rollout,)
    )
    member = ScoredRollout(worker.rollout, 0.0, 100)
    reward = Listener()
    with Reader(station.home) as reader:
        outcome = GroupOutcome(group, (member,), (), 19)
        (scored,) = ProcessRewards(tmp_path / "scores", reward).add(reader, [outcome])
        found = list(read_decisions(reader, [worker.rollout]))
    assert scored.scores[0][7] == 0.0, "what is no action earns nothing"

    labels = [each.label(0.5, "judge", "") for each in found if each.decision.sound]
    assert len(labels) == 18
    assert [label.text for label in labels] == reward.texts
    assert sorted(live.texts) == sorted(reward.texts)
    tokenizer = load_tokenizer(scoring.model_folder)
    trained = prm_run.training_set(labels, tokenizer, 4_096)["input_ids"]
    assert list(trained) == [encode_text(tokenizer, text, 4_096) for text in live.texts]
    assert not any(f"w{20 + label.step}" in label.text for label in labels), "no result of its own"
