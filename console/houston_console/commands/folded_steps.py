"""`houston steps --fold`: one line a step in plain words, equal failures on one line.

What a step did is said by `commands.step_outcomes`, as on the console's lines. Whole steps are
printed by `commands.step_commands`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from houston_console.commands import step_outcomes
from houston_console.commands.output_page import OutputPage, OutputSpan, span
from houston_console.commands.rollout_summary import cut_text, format_local_time, format_score
from houston_shared.records import StepRecord
from houston_shared.store.annotation_queries import VerdictRow

TARGET_CHARACTERS = 100
"""Of a command or file; `--full` leaves nothing out."""


class _JudgedStep(NamedTuple):
    record: StepRecord
    verdict: VerdictRow | None


class FoldedStepPrinter:
    """Prints steps as they come; a step that failed waits for those that may equal it."""

    def __init__(self, page: OutputPage, full: bool, waits: bool) -> None:
        """full: cut nothing. waits: whether a failed step may wait for the steps of a later call;
        whoever follows a rollout wants to see it at once."""
        self._page, self._full, self._waits = page, full, waits
        self._equal_steps: list[_JudgedStep] = []
        """Steps of the line that is not printed yet."""
        self._key: bytes | None = None
        self._score: float | None = None
        """The newest score that was printed."""

    def show(
        self,
        records: Sequence[StepRecord],
        verdicts: Mapping[tuple[int, int], VerdictRow],
        rewards: object = None,
    ) -> None:
        """Print steps, in order."""
        for record in records:
            key = fold_key(record)
            if key is None or key != self._key:
                self.flush()
            self._key = key
            self._equal_steps.append(
                _JudgedStep(record, verdicts.get((record.step, record.attempt)))
            )
        if not self._waits:
            self.flush()
        self._page.flush()

    def flush(self) -> None:
        """Print what waits."""
        if self._equal_steps:
            self._page.line(*self._line(self._equal_steps))
        self._equal_steps, self._key = [], None

    def _line(self, steps: Sequence[_JudgedStep]) -> list[OutputSpan]:
        record, count = steps[0].record, len(steps)
        name = str(record.step)
        if count > 1:
            name = step_outcomes.format_fold(record.step, steps[-1].record.step)
        spans = [span(f"{name:>6}  ", "name"), span(format_local_time(record.at)[:19], "dim")]
        outcomes = step_outcomes.step_outcomes(record)
        main = step_outcomes.main_outcome(outcomes)
        failed = bool(main and main.failed)
        marks = [mark for mark, is_set in (("✗", failed), ("✎", bool(record.guidance))) if is_set]
        spans.append(span(f"  {' '.join(marks):<3} ", "bad" if failed else "person"))
        limit = 10**6 if self._full else TARGET_CHARACTERS
        words = f"no action {record.sample.malformed}".rstrip()
        if main is not None:
            words = step_outcomes.outcome_text(main, len(outcomes) - 1)
        spans.append(span(cut_text(words, limit), "call"))
        if main is not None and main.result:
            spans.append(span(f"  {main.result}", "bad" if failed else "dim"))
        if count > 1:
            return [*spans, span(f"  ×{count:,}", "bad"), *_verdict_spans(steps)]
        spans += [*_file_spans(record), *self._score_spans(record)]
        seconds = sum(outcome.seconds for outcome in outcomes)
        if duration := step_outcomes.shown_duration(seconds):
            spans.append(span(f"  {duration}", "dim"))
        return [*spans, *_verdict_spans(steps)]

    def _score_spans(self, record: StepRecord) -> list[OutputSpan]:
        """The score that a step got, and whether it is above the one printed before."""
        score = step_score(record)
        if score is None:
            return []
        before, self._score = self._score, score
        way = ""
        if before is not None:
            way = " ▲" if score > before else " ▼" if score < before else " ="
        return [span(f"  score {format_score(score)}{way}", "bad" if way == " ▼" else "good")]


def fold_key(record: StepRecord) -> bytes | None:
    """The key of a step's failure, for equal failures; None for a step that needs its own line: it
    did not fail, heard guidance, changed a file, was scored, or began a new context."""
    closed = record.observation
    alone = (
        closed is None
        or closed.files
        or record.guidance
        or record.aside
        or record.sample.drift == "forked"
        or step_score(record) is not None
    )
    return None if alone else step_outcomes.failure_key(record.results)


def step_score(record: StepRecord) -> float | None:
    """The score of a submission that a step made; None without one."""
    scores = [result.fields.get("overall_score") for result in record.results
              if result.kind == "eval"]  # fmt: skip
    return next((float(score) for score in scores if isinstance(score, int | float)), None)


def _file_spans(record: StepRecord) -> list[OutputSpan]:
    files = record.observation.files if record.observation else ()
    if not files:
        return []
    added, removed = sum(file.added for file in files), sum(file.removed for file in files)
    count = f"  {len(files)} files" if len(files) > 1 else ""
    return [span(f"{count}  +{added}", "good"), span(f" −{removed}", "bad")]


def _verdict_spans(steps: Sequence[_JudgedStep]) -> list[OutputSpan]:
    """`keep (human)`; of several steps, how many have it where not all do."""
    counts = Counter(
        f"{'keep' if step.verdict.keep else 'mask'} ({step.verdict.source})"
        for step in steps
        if step.verdict
    )
    return [
        span(f"  {words}" + (f" {count} of {len(steps)}" if count < len(steps) else ""))
        for words, count in counts.items()
    ]
