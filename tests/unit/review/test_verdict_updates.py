"""What is said again to the recorder: only what differs, in ranges as long as they can be."""

from houston_daemon.review.verdict_updates import StepVerdict, changed_verdicts, verdict_ranges
from houston_shared.store.annotation_queries import SourceVerdict

BY = "judge:e template 1"
MASK = StepVerdict("mask", "why")


def stored(step: int, verdict: str = "mask", reason: str = "why", by: str = BY) -> SourceVerdict:
    assert verdict in ("keep", "mask")
    return SourceVerdict(
        step, 1, "judge", "keep" if verdict == "keep" else "mask", by, reason, 0, step
    )


def test_only_what_differs_is_said() -> None:
    before = {1: stored(1), 2: stored(2), 3: stored(3), 4: stored(4, by="judge:e template 0")}
    now = {1: MASK, 2: StepVerdict("keep"), 4: MASK, 5: MASK}
    assert changed_verdicts(before, BY, dict.fromkeys(range(1, 8), 1), now) == {
        2: StepVerdict("keep"),
        3: StepVerdict("undecided"),  # nothing is said of it any more
        4: MASK,  # another judge says it
        5: MASK,
    }
    assert changed_verdicts(before, BY, {1: 1}, now) == {}


def test_what_is_not_asked_about_stays_as_it_is() -> None:
    assert changed_verdicts({9: stored(9)}, BY, {1: 1, 2: 1}, {}) == {}


def test_neighbours_of_which_the_same_is_said_are_one_range() -> None:
    verdicts = {
        1: MASK,
        2: MASK,
        3: StepVerdict("keep"),
        5: StepVerdict("keep"),
        6: StepVerdict("keep"),
        7: MASK,
    }
    assert [(span.first, span.last, span.verdict) for span in verdict_ranges(verdicts)] == [
        (1, 2, "mask"), (3, 3, "keep"), (5, 6, "keep"), (7, 7, "mask"),
    ]  # fmt: skip


def test_a_long_reason_is_cut_as_it_would_be_stored() -> None:
    (verdict,) = changed_verdicts({}, BY, {1: 1}, {1: StepVerdict("mask", "x" * 5000)}).values()
    before = {1: stored(1, reason=verdict.reason)}
    assert changed_verdicts(before, BY, {1: 1}, {1: StepVerdict("mask", "x" * 5000)}) == {}


def test_what_was_said_of_an_attempt_that_was_replaced_is_said_again() -> None:
    assert changed_verdicts({1: stored(1)}, BY, {1: 2}, {1: MASK}) == {1: MASK}
    assert changed_verdicts({1: stored(1)}, BY, {1: 2}, {}) == {}
