"""What an answer weighs in a row of entries: where it was sampled, and where a fork kept it."""

from houston_daemon.training.rows.plan import (
    Answer,
    RolloutPlan,
    Weight,
    again,
    null,
    stopped,
    weigh,
)
from houston_daemon.training.rows.row import RowOptions
from houston_daemon.training.rows.walk import Standing
from houston_shared.records import SampleBody


def answer(sample: SampleBody, ended: bool = True, empty: bool = False, unfit: str = "") -> Answer:
    """What of a sample decides its weight. ended: whether its ids ended with a stop token, where
    the sample has lost them; empty: whether nothing of it is left that a model wrote; unfit: why it
    may not be trained (`soundness`)."""
    ended = ended and stopped(sample.token_ids, sample.parameters.get("stop_token_ids"))
    why = null(sample.malformed, [call.error for call in sample.calls])
    return Answer(sample.finish_reason, why, empty, ended, unfit)


def weight_of(
    one: Standing, said: Answer, plan: RolloutPlan, options: RowOptions, row: str
) -> Weight:
    """What the answer of a step weighs in the row with this id. said: what decides it."""
    weight = weigh(one.step, said, options)
    home = plan.named(one.home)
    summary = "/summary." in row
    if row == home or (options.overlap == "paper" and not summary):
        return weight
    return again(weight, home)
