"""What a row is: token ids (or messages), the spans that a model sampled, and the weight of each
span.

All rows are made through these types: every `TokenRow` or `ChatRow` keeps its invariants
(docs/design.md#invariant-7). `RowOptions` says how rows are made of a rollout. The module does not
know where ids come from or why a step got its verdict.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from houston_shared.errors import HoustonError
from houston_shared.records import ELSEWHERE, ContextHead, LogprobKind, Message
from houston_shared.sample_roles import ROW_ROLES, SAMPLE_ROLES, SampleRole

RowKind = Literal["react", "summary"]
"""`react`: a context with the actions of its steps. `summary`: one summary and its request."""
IdsSource = Literal["ledger", "rendered"]
"""Where the ids come from: as they were sent and sampled, or made by a dialect from messages."""
Provenance = Literal["sandbox", "none", "elsewhere"]
"""`none`: the rollout ran without a sandbox, so who wrote its files cannot be promised.
`elsewhere`: it was sampled by another program and imported; nothing of it can be."""


def provenance_of(sandbox: str) -> Provenance:
    """The provenance of a rollout with that kind of sandbox."""
    if sandbox == ELSEWHERE:
        return "elsewhere"
    return "none" if sandbox == "none" else "sandbox"


IGNORED_LABEL = -100
"""The label of a token that is not trained (what PyTorch's cross entropy ignores)."""


class BrokenRow(ValueError):
    """A row that would break an invariant: a fault of ours, never of who exports."""


def check_role(sampled: str, expected: SampleRole, step: int) -> None:
    """Refuse an answer of another role than the rows are made of: the answer of a judge or a
    planner is no action of the policy, but would be trained as one.

    Rows are made of steps (by the policy, or in a flow by the planner) and of summaries. Raises
    HoustonError.
    """
    if sampled == expected:
        return
    is_known = sampled in SAMPLE_ROLES
    role = f"the role {sampled!r}" if is_known else f"an unknown role ({sampled[:40]!r})"
    raise HoustonError(
        f"Step {step} was sampled in {role}, but rows are made of the role {expected!r}.",
        "No rows were made of it.",
        "Leave its rollout out.",
    )


def has_foreign_ids(
    head: ContextHead | None, tokenizer: str, new_prompt_ids: Sequence[int] | None
) -> bool:
    """Whether a sample has ids of another dialect or tokenizer than the head's, or none where the
    head has some. Answers of a role with its own engine are rendered, not read.

    tokenizer, new_prompt_ids: of the sample (`SampleBody`).
    """
    return bool(tokenizer) or (
        head is not None and head.token_ids is not None and new_prompt_ids is None
    )


@dataclass(frozen=True, slots=True)
class SampledSpan:
    """A stretch of a row that a model sampled: one answer with its stop token."""

    start: int
    """Position of its first token in the row."""
    end: int
    """Position after its last token: the stretch is [start, end)."""
    step: int
    """The step that the answer decided; of a summary the step that its fork comes before."""
    attempt: int
    """Which attempt at the step."""
    role: SampleRole
    sample_seq: int
    """Journal sequence of the sample."""
    policy: str
    """Version that sampled it (`policy@2`); empty for the base model."""
    policy_hash: str
    """Content of that version; empty for the base model, and of homes from before it was kept."""
    weight: float
    """1.0 when trained; 0.0 when masked, or when another row trains it."""
    why: str
    """Why the weight is 0; empty exactly when it is trained. A copy of an answer that stands in
    another row too names that row, which has the reason: `trained in row …`, `masked in row …`."""
    logprob_kind: LogprobKind
    """What its log-probabilities are of, where the row has them. Only `policy` is the probability
    with which the tokens were drawn."""
    sampling: Mapping[str, Any]
    """How they were drawn: temperature, top_p and what else bends a distribution, as it was sent (a
    grammar by its hash)."""
    guided: bool
    """Whether a grammar decided some of its tokens."""
    by: str = ""
    """Whose verdict it was: `human`, `judge` or `rule`; `not judged` where it is trained although
    nobody judged it; empty where no verdict counts (a summary, an interruption, a copy)."""
    engine: str = ""
    """What sampled it, as the ledger names it."""
    corrected: int = 0
    """How many of its last tokens a correction sampled, where purification put it together; 0 for
    any other, and where the ledger does not say."""

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise BrokenRow(f"span [{self.start}, {self.end}) of step {self.step} is empty")
        if self.weight < 0 or (self.weight > 0) == bool(self.why):
            raise BrokenRow(f"step {self.step} weighs {self.weight} because {self.why!r}")


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One training example as token ids.

    Invariants: spans are in order, disjoint and inside the row; log-probabilities belong to a span
    and have its length; a token outside every span was never sampled and weighs nothing.
    """

    id: str
    """`<rollout>/<context>.<part>`, `<rollout>/summary.<n>`, or of what purification replaced
    `<rollout>/raw.<step>`: the same after every export."""
    kind: RowKind
    rollout: str
    task: str
    """Name of the task: what a split goes by."""
    group: str
    """Group of the rollout; empty without one."""
    domain: str
    """Domain of the task, for results by domain; empty without one."""
    context: int
    """0 before the first fork, n after the n-th; of a summary the context that it replaced."""
    source: IdsSource
    provenance: Provenance
    token_ids: "array[int]"
    """Ids of head, answers and observations (`array('i')`)."""
    spans: tuple[SampledSpan, ...]
    logprobs: Mapping[int, "array[float]"] = field(default_factory=dict)
    """By index of a span, log-probabilities of its tokens (`array('f')`); none when rendered."""
    dialect: str = ""
    """Which dialect wrote what was not sampled."""
    tokenizer: str = ""
    """Path of the tokenizer file that the ids belong to."""

    def __post_init__(self) -> None:
        end = 0
        for index, span in enumerate(self.spans):
            if span.start < end or span.end > len(self.token_ids):
                raise BrokenRow(f"span {index} of row {self.id} overlaps another or the row's end")
            end = span.end
        for index, values in self.logprobs.items():
            if not 0 <= index < len(self.spans):
                raise BrokenRow(f"row {self.id} has log-probabilities of no span ({index})")
            span = self.spans[index]
            if len(values) != span.end - span.start:
                raise BrokenRow(f"row {self.id} has other log-probabilities than tokens ({index})")

    def weights(self) -> "array[float]":
        """One weight per token; 0.0 outside every span (`array('f')`)."""
        weights = array("f", bytes(4 * len(self.token_ids)))
        for span in self.spans:
            if span.weight:
                weights[span.start : span.end] = array("f", [span.weight]) * (span.end - span.start)
        return weights

    def labels(self) -> "array[int]":
        """The id where a token is trained, else -100: what a token is, not what it predicts."""
        labels = array("i", [IGNORED_LABEL]) * len(self.token_ids)
        for span in self.spans:
            if span.weight:
                labels[span.start : span.end] = self.token_ids[span.start : span.end]
        return labels

    @property
    def trained(self) -> int:
        """Tokens with a weight."""
        return sum(span.end - span.start for span in self.spans if span.weight)

    @property
    def sampled(self) -> int:
        """Tokens that a model sampled, trained or not."""
        return sum(span.end - span.start for span in self.spans)


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a chat row."""

    message: Message
    """Calls have their arguments as objects."""
    step: int | None
    """The step that the message belongs to; None for the head and for a fork's summary."""
    weight: float
    """1.0 for an answer that is trained; 0.0 for everything else."""
    why: str
    """Why an answer weighs nothing; empty for what nobody sampled."""
    by: str = ""
    """Whose verdict it was, as in `SampledSpan`."""


@dataclass(frozen=True, slots=True)
class ChatRow:
    """One training example as messages."""

    id: str
    """As the row of ids of the same context has it."""
    kind: RowKind
    rollout: str
    task: str
    group: str
    domain: str
    context: int
    provenance: Provenance
    messages: tuple[ChatMessage, ...]
    tools: tuple[dict[str, Any], ...]
    """Tool schemas in OpenAI's form, as the head had them."""
    step_role: SampleRole = "policy"
    """The role whose answers are the steps of its rollout."""

    def __post_init__(self) -> None:
        for message in self.messages:
            if message.weight and message.message.role != "assistant":
                raise BrokenRow(f"row {self.id} trains a message of a {message.message.role}")
            if message.weight and message.why:
                raise BrokenRow(f"row {self.id} trains step {message.step} although {message.why}")

    @property
    def trained(self) -> int:
        """Messages with a weight."""
        return sum(message.weight > 0 for message in self.messages)


@dataclass(frozen=True, slots=True)
class RowOptions:
    """How rows are made of a rollout; a recipe's part of the manifest."""

    overlap: Literal["once", "paper"] = "once"
    """`once`: every sampled token is trained at most once, in the context it was sampled in.
    `paper`: a step that a fork keeps is trained in every context it stands in, as in APOLLO."""
    thoughts: Literal["as sampled", "strip"] = "as sampled"
    """`as sampled`: a thought is trained with its action where the policy saw it that way.
    `strip`: contexts without thoughts, of which the actions are trained, as in APOLLO. A rollout
    that ran with `thoughts = "strip"` gives such rows in any case."""
    attempts: Literal["purified", "raw"] = "purified"
    """`purified`: of a purified step what replaced it is trained. `raw`: what was sampled, each
    attempt and correction in the context it was sampled in; needs the ledger's ids."""
    unjudged: Literal["keep", "mask"] = "keep"
    """What a step weighs of which nobody said anything."""
    masking: bool = True
    """False: every answer is trained but interrupted ones, whatever was said of it (APOLLO's
    ablation without masking)."""
    people_mask: bool = False
    """Whether a person's mask holds without `masking`, too (reinforcement learning)."""
    roles: tuple[SampleRole, ...] = ROW_ROLES
    """Roles whose answers are trained (`parse_row_roles`): without `policy` (of a flow, `planner`)
    contexts make no rows, without `summary` summaries make none."""
    cut: Literal["mask", "keep"] = "mask"
    """What an answer weighs that has no stop token: cut at its limit of tokens, or ended by the
    engine without one."""
    dialect: str = ""
    """Renders rollouts without token ids; empty: the dialect of the rollout's head."""
    tokenizer: str = ""
    """Its `tokenizer.json`, or the folder that holds it; empty: the head's."""
    reasoning: bool | None = None
    """Whether the dialect's answers open for reasoning, where the family has a switch; None: as
    the rollout ran."""
    short_tools: bool = False
    """Whether a head that is rendered shows each tool in one line instead of its JSON schema."""
    window: int = 0
    """Window of the model that is trained, tokens: a head that is rendered shows long lists of
    tools short where its rollouts would; 0: where `short_tools` says."""
