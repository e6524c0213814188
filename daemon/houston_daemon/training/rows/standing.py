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


def answer(sample: SampleBody, ended: bool = True, empty: bool = False) -> Answer:
    """What of a sample decides its weight. ended: whether its ids ended with a stop token, where
    the sample has lost them; empty: whether nothing of it is left that a model wrote."""
    ended = ended and stopped(sample.token_ids, sample.parameters.get("stop_token_ids"))
    why = null(sample.malformed, [call.error for call in sample.calls])
    return Answer(sample.finish_reason, why, empty, ended)


def weight_of(
    one: Standing, plan: RolloutPlan, options: RowOptions, row: str, empty: bool
) -> Weight:
    """What the answer of a step weighs in the row with this id.

    empty: whether nothing of the answer is left that a model wrote.
    """
    weight = weigh(one.step, answer(one.record.sample, one.stopped, empty), options)
    home = plan.named(one.home)
    summary = "/summary." in row
    if row == home or (options.overlap == "paper" and not summary):
        return weight
    return again(weight, home)
