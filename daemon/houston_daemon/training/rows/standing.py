"""What an answer weighs in a row of entries: where it was sampled, and where a fork kept it."""

from houston_daemon.training.rows.plan import Answer, RolloutPlan, Weight, again, weigh
from houston_daemon.training.rows.row import RowOptions
from houston_daemon.training.rows.walk import Standing


def weight_of(
    one: Standing, plan: RolloutPlan, options: RowOptions, row: str, empty: bool
) -> Weight:
    """What the answer of a step weighs in the row with this id.

    empty: whether nothing of the answer is left that a model wrote.
    """
    sample = one.record.sample
    weight = weigh(one.step, Answer(sample.finish_reason, sample.malformed, empty), options)
    home = plan.named(one.home)
    summary = "/summary." in row
    if row == home or (options.overlap == "paper" and not summary):
        return weight
    return again(weight, home)
