"""The manifest of an export: its content and origin, who spoke to its agents, and who judged their
steps.

The manifest contains no time and not its own path, so that the same inputs give the same bytes. A
folder without one is no export. `JudgedBy` counts the rules, judges and people behind a set of
rows. `dataset_card` makes the page that people read.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from houston_daemon.training.rows import shared_steps
from houston_daemon.training.rows.answer_soundness import FORGED_TURN, NOT_READ_BACK
from houston_daemon.training.rows.rule_verdicts import RuleRuns
from houston_shared import verdict_precedence
from houston_shared.errors import HoustonError
from houston_shared.secret_redaction import redact, redact_all
from houston_shared.store import annotation_queries, rollout_queries, step_queries
from houston_shared.store.journal_events import OPEN_END
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import pluralize

_RULE_MASK_PREFIX = "mask: rule"
"""How the reason of a step begins that a rule masks."""


LEFT_OUT_REASON = "left out: its consumer would mistrain it"


class JudgedBy(msgspec.Struct, frozen=True):
    """Verdicts that stand on the steps of some rollouts."""

    rules: dict[str, int]
    """`name@version` → steps that it masks."""
    judges: dict[str, int]
    """Judge as it named itself → steps that it judged."""
    people: int
    """Steps that a person judged."""
    counts: dict[str, int]
    """Steps by the verdict that counts: `keep by human`, `mask by rule`, …"""
    ran: dict[str, int] = {}
    """`name@version` of each rule that was run for the export → rollouts on which it was."""
    steps: int = 0
    """Closed steps of the rollouts, a shared one once."""
    unjudged: int = 0
    """Of them, those of which neither a judge nor a person said anything."""

    @property
    def sentence(self) -> str:
        """Who looked at the steps, in a sentence."""
        who = "rules mask" if self.ran else "no rule was run, stored verdicts of rules mask"
        rules = f"{who} {self.counts.get('mask by rule', 0):,}"
        share = f"{100 * self.unjudged / max(1, self.steps):.0f} %"
        nobody = f"nobody judged {self.unjudged:,} ({share}): neither a judge nor a person"
        return f"Of {pluralize(self.steps, 'step')} {rules}; {nobody}."


def read_judged_by(reader: Reader, rollouts: Sequence[str], runs: RuleRuns) -> JudgedBy:
    """What stands on rollouts (whole ids), once on a step that several share; short reads.

    runs: what rules say, as the rows have it.
    """
    rules: Counter[str] = Counter()
    judges: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    people, unjudged, counted = 0, 0, set[tuple[str, int]]()
    for rollout in rollouts:
        line = reader.run(rollout_queries.step_ranges(rollout))
        stored = reader.run(annotation_queries.read_verdicts_with_reasons(rollout))
        rules_say = runs.verdicts_of(rollout)
        for row in reader.run(step_queries.list_step_rows(rollout)):
            owned_step = (shared_steps.owner_of(rollout, line, row.step), row.step)
            if row.observation_seq is None or owned_step in counted:
                continue
            counted.add(owned_step)
            verdicts = stored.get(row.step, [])
            if rules_say is not None:
                verdicts = rules_say.counted_verdicts(row, verdicts)
            unjudged += all(verdict.source == "rule" for verdict in verdicts)
            if not verdicts:
                continue
            counts[f"{verdicts[0].verdict} by {verdicts[0].source}"] += 1
            for verdict in verdicts:
                people += verdict.source == "human"
                if verdict.source == "rule":
                    rules.update(_rules_in_reason(verdict.reason) or {verdict.by})
                if verdict.source == "judge":
                    judges[redact(verdict.by)] += 1
    return JudgedBy(
        _sorted_counts(rules), _sorted_counts(judges), people, _sorted_counts(counts),
        _sorted_counts(Counter(runs.ran)),
        len(counted), unjudged,
    )  # fmt: skip


def read_people(reader: Reader, rollouts: Sequence[str], by_name: bool) -> dict[str, int]:
    """Messages that agents of rollouts (whole ids) heard, by who said them, each once; short reads.

    by_name: whether people are named; else they are numbered, whoever said most first.
    """
    authors: dict[str, str] = {}
    for rollout in rollouts:
        by_step = reader.run(annotation_queries.list_delivered_guidance(rollout, 1, OPEN_END))
        authors |= {message.id: message.author for group in by_step.values() for message in group}
    counted = Counter(authors.values())
    ranked = sorted(counted, key=lambda author: (-counted[author], author))
    people = [author for author in ranked if not author.startswith(_CRITIC_PREFIX)]
    labels = {author: f"person {number}" for number, author in enumerate(people, 1)}
    return {author if by_name else labels.get(author, author): counted[author] for author in ranked}


_CRITIC_PREFIX = "critic "
"""Begins the author of what a critic said by itself."""


def judged_by_sentence(manifest: dict[str, Any]) -> str:
    """The same sentence of a manifest that was read back; data from elsewhere may have none."""
    try:
        judged_by = msgspec.convert(manifest.get("verdicts"), JudgedBy)
    except msgspec.ValidationError:
        return "It is unknown who judged these rows: their manifest does not say."
    return (
        judged_by.sentence
        if judged_by.steps
        else "These rows date from before rules were run on every export."
    )


def _rules_in_reason(reason: str) -> set[str]:
    """`name@version` of the rules that a reason names; it quotes agents, who name packages so."""
    return {f"{rule.rule}@{rule.version}" for rule in verdict_precedence.split_rule_reasons(reason)}


def _sorted_counts(counted: Counter[str]) -> dict[str, int]:
    return dict(sorted(counted.items()))


def reason_kind(text: str) -> str:
    """A reason of a weight of 0 as a kind that can be counted: without steps, rows and words."""
    if text.startswith(_RULE_MASK_PREFIX):
        rules = sorted(_rules_in_reason(text.removeprefix(_RULE_MASK_PREFIX).lstrip()))
        return f"{_RULE_MASK_PREFIX} {', '.join(rules)}".rstrip()
    for kind in ("mask: judge", "mask: human", "no action", FORGED_TURN, NOT_READ_BACK):
        if text.startswith(kind):
            return kind
    for kind, words in _ELSEWHERE_KINDS.items():
        if text.startswith(kind):
            return words
    return text


_ELSEWHERE_KINDS = {
    "trained in row": "trained in another row",
    "masked in row": "masked in another row",
    "trained with rollout": "trained in another rollout",
    "masked with rollout": "masked in another rollout",
    "left out with row": LEFT_OUT_REASON,
}


MANIFEST_NAME = "manifest.json"
MANIFEST_VERSION = 1


class ExportedFile(msgspec.Struct, frozen=True):
    """One data file."""

    name: str
    rows: int
    """Lines in it, copies too."""
    bytes: int
    sha256: str
    tokens: int | None
    """Of ids; None for rows of messages."""
    trained: int
    """Tokens with a weight; of messages, answers."""
    longest: int
    """Tokens of the longest row; of messages, messages."""


class ExportedRollout(msgspec.Struct, frozen=True):
    """One rollout that rows come from."""

    rollout: str
    task: str
    group: str
    parent: str
    parent_step: int | None
    state: str
    newest_seq: int
    """The newest event of it that was there when its rows were made."""
    past_seq: int
    """Of a branch, the newest event of the rollouts whose steps it shares; else 0."""
    provenance: str
    """`none` for a rollout without a sandbox, `elsewhere` for an imported one."""
    engine: str
    policies: list[str]
    """That sampled what is in its rows."""
    rows: int
    """Without copies."""
    held_out: bool
    moved: bool
    """Whether it went on while it was exported."""


class LeftOutRow(msgspec.Struct, frozen=True):
    """A row that is not in the files."""

    row: str
    why: str


class SamplingCount(msgspec.Struct, frozen=True):
    """How some of the tokens were sampled, and what their log-probabilities are of."""

    policy: str
    """Version; empty for the base model."""
    policy_hash: str
    """Its content; empty for the base model, and where it was not kept."""
    sampling: dict[str, Any]
    """Temperature, top_p and what else bends a distribution; a grammar by its hash."""
    logprob_kind: str
    """Only `policy` is the probability with which they were drawn; `none` where there is none."""
    tokens: int
    """Sampled, trained or not; in several rows they count in each."""
    engine: str = ""
    """What sampled it, as the ledger names it."""


class TrainedCounts(msgspec.Struct, frozen=True):
    """What weighs and what does not, without a recipe's copies; held out rows, too."""

    unit: str
    """`tokens`, or `answers` for rows of messages."""
    all: int
    """Tokens, or messages, of all rows."""
    sampled: int
    """Of answers; one that stands in several rows counts in each."""
    trained: int
    unjudged: int
    """Of those that are trained: of steps of which nobody said anything."""
    untrained: dict[str, int]
    """Sampled and not trained, by why; with `trained` it makes `sampled`."""


class ExportManifest(msgspec.Struct, frozen=True):
    """`manifest.json`."""

    version: int
    format: str
    rows: int
    content_hash: str
    """SHA-256 of the data file; that of held_out stands with it in `files`."""
    inputs: str
    """SHA-256 of everything that was asked and of how far each source was: who asks the same of the
    same gets the same."""
    files: list[ExportedFile]
    counts: TrainedCounts
    sources: list[ExportedRollout]
    provenance: str
    """`none` where a source ran without a sandbox: nobody can promise who wrote its files; else
    `elsewhere` where one was sampled by another program."""
    verdicts: JudgedBy
    options: dict[str, Any]
    recipe: dict[str, Any]
    split: dict[str, Any]
    """`by`, tasks to `train` on and `held_out`."""
    tokenizers: dict[str, str]
    """File → SHA-256, of the ids' tokenizers; empty for rows of messages."""
    dialects: list[str]
    base: list[str]
    """Models that the sources' engines name."""
    left_out: list[LeftOutRow]
    remarks: dict[str, int]
    """What is true of so many lines."""
    traps: list[str]
    """What the consumer does without a word."""
    versions: dict[str, str]
    drawn: list[SamplingCount] = []
    """Of rows of ids; empty for rows of messages."""
    ids_from: dict[str, int] = {}
    """Rows of ids without copies: `ledger` as they were sampled, `rendered` by a dialect; empty for
    rows of messages, and in manifests from before it was counted."""
    people: dict[str, int] = {}
    """Who spoke to these agents → messages that were heard. `person 1` for whoever said most,
    unless `[export] people_by_name` allows names; a critic that speaks by itself is named."""
    run: dict[str, Any] = {}
    """Of rows with credit: the run, how its rewards are made, and its groups; else empty."""


def encode_manifest(manifest: ExportManifest) -> bytes:
    """As it stands in the folder: indented, keys in their order."""
    clean = redact_all(msgspec.to_builtins(manifest))  # an engine's address may hold a key
    return msgspec.json.format(msgspec.json.encode(clean), indent=1) + b"\n"


def decode_manifest(raw: bytes, where: object) -> ExportManifest:
    """A manifest read back; raises HoustonError for what is none."""
    try:
        return msgspec.json.decode(raw, type=ExportManifest)
    except msgspec.MsgspecError as problem:
        raise HoustonError(f"{where} is not an export manifest ({problem}).") from None
