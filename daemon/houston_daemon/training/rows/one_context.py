"""What rows of one context are made of, as ids or as messages: its names, its weights, the request
for its summary. What a row looks like is its maker's business.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from houston_daemon.rollout import summary
from houston_daemon.rollout.rendering import Renderer
from houston_daemon.training.rows import soundness
from houston_daemon.training.rows.plan import RolloutPlan, Weight, weigh_summary
from houston_daemon.training.rows.row import RowOptions
from houston_daemon.training.rows.standing import answer, weight_of
from houston_daemon.training.rows.walk import Standing, Walked
from houston_shared.records import Message, SampleBody
from houston_shared.store.queries.progress import Fork


class Part(NamedTuple):
    """One entry of a context as it stands in a request."""

    of: Standing | None
    """The step that it is; None for the pair of an earlier fork."""
    ids: Sequence[int]
    messages: Sequence[Message]


class OneContext:
    """One context of a rollout, of which rows are made."""

    def __init__(
        self, plan: RolloutPlan, options: RowOptions, renderer: Renderer, walked: Walked
    ) -> None:
        self.plan = plan
        self.options = options
        self.renderer = renderer
        self.walked = walked
        self.name = plan.named(walked.plan.number)
        """Id of the row of its actions."""
        self.summary_name = plan.named_summary(walked.plan.number + 1)
        """Id of the row of the summary that replaced it."""

    def requested(self, fork: Fork) -> Iterator[Part]:
        """What the summary was asked about: the first k entries, the last one with the request."""
        by_step = {one.record.step: one for one in self.walked.standing}
        entries = self.walked.context.entries[: fork.k]
        for entry in entries:
            of = None if entry.summary else by_step[entry.step]
            if entry is entries[-1]:
                yield Part(of, *self.renderer.asking(entry, summary.REQUEST))
            else:
                yield Part(of, entry.ids, entry.messages)

    def weight(self, one: Standing, row: str, empty: bool) -> Weight:
        """What the answer of a step weighs in the row with this id."""
        said = answer(one.record.sample, one.stopped, empty, self.unfit(one))
        return weight_of(one, said, self.plan, self.options, row)

    def unfit(self, one: Standing) -> str:
        """Why the answer of a step may not be trained."""
        return one.forged or ""

    def summary_weight(self, sample: SampleBody, unfit: str | None) -> Weight:
        """What the summary weighs. unfit: why it may not be trained."""
        return weigh_summary(answer(sample, unfit=unfit or ""), self.options)

    def forged(self, sample: SampleBody) -> str | None:
        """Why the summary's ids are a forged turn, as of a step (`Standing.forged`)."""
        return soundness.sampled(soundness.of_head(self.plan.head), sample)
