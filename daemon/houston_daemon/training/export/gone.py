"""What cannot be used of the rollouts of an export, and who must make up for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from houston_daemon.training.rows.beside import Beside, Lost


@dataclass(frozen=True, slots=True)
class Gone:
    """It only grows, so that trying again comes to an end."""

    among: Beside
    """All rollouts of the export."""
    whole: Mapping[str, str] = field(default_factory=dict)
    """Rollouts of which no rows can be made, and why."""
    answers: Lost = field(default_factory=dict)
    """What others of them share: all else is nobody's to make up for, and of a rollout that goes on
    there would be more of it in each try."""

    @property
    def beside(self) -> Beside:
        """Who trains what with this gone."""
        return self.among.but(self.whole, self.answers)

    def and_more(self, whole: Mapping[str, str], lost: Lost) -> "Gone":
        """With more that is gone."""
        answers = dict(self.answers)
        for rollout, more in lost.items():
            if shared := {one for one in more if self.among.shared(rollout, one)}:
                answers[rollout] = shared.union(answers.get(rollout, ()))
        return Gone(self.among, {**self.whole, **whole}, answers)

    def settled(self, lost_of: Callable[[str, Beside], Lost]) -> "Gone":
        """With what those cannot train either who would have to: a try of the whole export for each
        branch of a group would take hours.

        lost_of: what a rollout (a whole id) cannot train, as things are.
        """
        gone = self
        while True:
            before, beside = gone, gone.beside
            takers = {beside.next(of, one) for of, lost in gone.answers.items() for one in lost}
            for taker in sorted(takers - {""}):
                gone = gone.and_more({}, lost_of(taker, beside))
            if gone.answers == before.answers:
                return gone
