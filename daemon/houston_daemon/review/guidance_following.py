"""Whether delivered guidance is followed, as far as its words name something; no model is asked.

`GuidanceFollowing` takes every step that closes and the guidance that its observation brought. In
later steps, the agent must not do what a message forbids (the rule `contradicted_guidance` defines
that), and must name one thing that it names: a file, a flag, quoted words, or a submission
(`houston_shared.guidance_asked_words`). Naming a thing does not show that it was done well: a
person judges that.
"""

import logging
from collections import deque

import msgspec

from houston_daemon.review.attention_window import excerpt, observe_record
from houston_daemon.review.rollout_trace import RolloutTrace
from houston_daemon.review.rules.guidance_rule import contradicted_guidance
from houston_shared.guidance_asked_words import asked_words
from houston_shared.records import DeliveredGuidance, StepRecord
from houston_shared.task import Task

log = logging.getLogger(__name__)
KEPT_STEPS = 20
"""Steps that are kept: a job that runs, or a file that was written, tells what a later step does.
"""


class GuidanceFollowing:
    """Follows the newest guidance of one rollout for some steps."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._records: deque[StepRecord] = deque(maxlen=KEPT_STEPS)
        self._guidance_step = 0
        """The step whose guidance is followed; 0 for none."""
        self._action_count = 0
        """Steps since that did more than sleep."""

    def replay(self, record: StepRecord) -> None:
        """Take a closed step that the journal has already, with its guidance."""
        self.take(record)
        self.hear(record.guidance)

    def hear(self, guidance: tuple[DeliveredGuidance, ...]) -> None:
        """Take the guidance that the observation of the last step brought."""
        if not guidance or not self._records:
            return
        self._records[-1] = msgspec.structs.replace(self._records[-1], guidance=guidance)
        self._guidance_step, self._action_count = self._records[-1].step, 0

    def take(self, record: StepRecord) -> str:
        """Take a step that closes; returns which guidance it does not follow, in words. Each is
        reported once."""
        self._records.append(record)
        most = self._task.attention.guidance_steps
        if not self._guidance_step or not most:
            return ""
        observed = observe_record(record)
        self._action_count += observed is not None and observed.acts
        reason = self._contradiction(record.step)
        if not reason and self._action_count >= most:
            reason = self._nothing_named()
        if reason or self._action_count >= most:
            self._guidance_step = 0
        return reason

    def _contradiction(self, step: int) -> str:
        trace = RolloutTrace("", self._task, "", {}, tuple(self._records))
        try:
            findings = list(contradicted_guidance(trace, self._task.rules))
        except Exception:  # a rule that fails ends no rollout; live rules say it of the rollout
            log.warning("it is not known whether step %s contradicts guidance", step, exc_info=True)
            return ""
        return next((finding.reason for finding in findings if finding.step == step), "")

    def _nothing_named(self) -> str:
        """Which message no step since has named anything of; empty for none."""
        step = next((each for each in self._records if each.step == self._guidance_step), None)
        if step is None:
            return ""
        later_text = "\n".join(
            _agent_text(record) for record in self._records if record.step > self._guidance_step
        ).lower()
        for message in step.guidance:
            words = asked_words(message.text)
            if words and not any(word in later_text for word in words):
                named = ", ".join(words[:3])
                return (
                    f"heard in step {step.step}, and {self._action_count} steps since name nothing"
                    f" of it ({named}): {excerpt(message.text)}"
                )
        return ""


def _agent_text(record: StepRecord) -> str:
    """What an agent thought and called in a step."""
    calls = (
        value for call in record.sample.calls for value in (call.name, *call.arguments.values())
    )
    return "\n".join([record.sample.thought, *map(str, calls)])
