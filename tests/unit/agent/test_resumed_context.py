"""Whole rollouts on paper: random steps, guidance and forks, told again from the ledger alone.

The history below does what the loop does with the same modules; the ledger is then read the slow
and obvious way, and a worker that resumes at any step must have the same ids.
"""

import itertools
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from houston_daemon.agent.context_compression import compressed_guidance, forked_context, least_k
from houston_daemon.agent.resumed_context import rebuild_context
from houston_daemon.prompts.context_ledger import Context, PromptAnchor, link_prompt
from houston_daemon.prompts.dialect_protocol import PromptPiece
from houston_daemon.prompts.model_dialects import choose_dialect
from houston_daemon.prompts.prompt_renderer import PromptRenderer, head_messages
from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer
from houston_shared.context_messages import ContextBody, build_messages, fit_guidance
from houston_shared.records import (
    ContextHead,
    DeliveredGuidance,
    ForkBody,
    Message,
    ObservationBody,
    SampleBody,
    StepRecord,
    ThoughtHandling,
    ToolCall,
    ToolResult,
)
from tests.support.family_tokenizers import FAMILY_DIALECTS, family_tokenizer
from tests.support.small_tokenizer import DIALECT_NAMES, small_tokenizer
from tests.support.tiers import sampled


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> PromptTokenizer:
    return PromptTokenizer(small_tokenizer(tmp_path_factory.mktemp("tokenizer")))


@pytest.fixture(scope="module")
def family_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


@dataclass(frozen=True)
class Plan:
    """What happens in one step."""

    thought: str
    output: str
    guidance: tuple[str, ...] = ()
    ending: str = "stop"
    """`stop`, `cut` (no stop token), `malformed`, `lost` (the engine lost the ids)."""
    fork: bool = False
    """Whether the context is forked before the step."""


@dataclass
class History:
    """A rollout as it happened, with every prompt that was sent."""

    renderer: PromptRenderer
    head: ContextHead
    context: Context
    records: list[StepRecord] = field(default_factory=list)
    prompts: dict[int, tuple[int, ...]] = field(default_factory=dict)
    samples: dict[int, SampleBody] = field(default_factory=dict)
    fork: ForkBody | None = None
    said: dict[str, DeliveredGuidance] = field(default_factory=dict)
    seq: int = 0
    room: int = 0
    """Bytes of guidance that an observation shows, and tokens beside a summary; 0: no limit."""

    @classmethod
    def begin(cls, tokens: PromptTokenizer, dialect: str, thoughts: ThoughtHandling) -> "History":
        renderer = PromptRenderer(choose_dialect(dialect), tokens, thoughts)
        head = renderer.head("system", (), "task", False)
        size = renderer.head_size(head)
        context = Context(head_messages(head), head.token_ids, size, PromptAnchor())
        return cls(renderer, head, context)

    def next_seq(self) -> int:
        self.seq += 1
        return self.seq

    def take(self, plan: Plan) -> None:
        step = len(self.records) + 1
        if plan.fork and len(self.context.entries) >= least_k(
            len(self.context.entries), self.context.begins_with_summary
        ):
            self.make_fork(step, mechanical=not plan.thought)
        prompt = self.context.prompt_ids
        assert prompt is not None
        how = link_prompt(
            self.context.anchor,
            prompt,
            fresh=self.context.has_no_sample,
            stripped=self.context.last_is_stripped,
        )
        sample = self.sampled(step, plan, how)
        seq = self.next_seq()
        self.samples[seq], self.prompts[seq] = sample, prompt
        self.context.anchor_sample(seq, prompt, sample.token_ids)
        call = sample.calls[0] if sample.calls else None
        results = (
            ()
            if call is None
            else (ToolResult(call=call, kind="command", success=True, text=plan.output),)
        )
        guidance = tuple(
            DeliveredGuidance(id=f"{step}-{n}", author="ann", text=t)
            for n, t in enumerate(plan.guidance)
        )
        self.said |= {one.id: one for one in guidance}
        observed = ObservationBody(tail=f"[step {step}]", guidance_bytes=self.room)
        self.context.add(self.renderer.render_step(step, sample, results, observed, guidance))
        self.records.append(
            StepRecord(
                step=step,
                attempt=1,
                sample_seq=seq,
                sample=sample,
                intents=(),
                results=results,
                observation=observed,
                guidance=guidance,
                at="",
                active_seconds=0.0,
            )
        )

    def sampled(self, step: int, plan: Plan, how: object) -> SampleBody:
        calls = (ToolCall(id=f"{step}.0", name="run", arguments={"command": plan.output[:9]}),)
        malformed = plan.ending == "malformed"
        pieces = list(self.renderer.dialect.assistant(plan.thought, calls))
        if plan.ending == "cut":
            pieces = [PromptPiece(plan.thought, False)]
        ids = None if plan.ending == "lost" else tuple(self.renderer.tokens.encode(pieces))
        return SampleBody(
            role="policy",
            parent_seq=how.parent_seq,
            kept=how.kept,
            new_prompt_ids=how.new_ids,
            token_ids=ids,
            logprobs=None,
            logprob_kind="none",
            finish_reason="stop",
            policy="",
            engine="test",
            parameters={},
            drift=how.drift,
            thought=plan.thought,
            calls=() if malformed else calls,
            malformed="why" if malformed else "",
        )

    def make_fork(self, step: int, mechanical: bool) -> None:
        context = self.context
        t = len(context.entries)
        k = least_k(t, context.begins_with_summary)
        seq = None if mechanical else self.next_seq()
        if seq is not None:
            prompt = (*(context.head_ids or ()), 1, 2, 3)
            how = link_prompt(context.anchor, prompt, fresh=True)
            self.prompts[seq] = prompt
            body = self.sampled(step, Plan("summary", ""), how)
            self.samples[seq] = msgspec.structs.replace(body, role="summary")
        ids, earlier = compressed_guidance(context, k)
        kept = context.entries[k - 1]
        count = self.renderer.measure.count
        shown = fit_guidance(context.guidance_of(k), self.room, count) if self.room else {}
        self.fork = ForkBody(
            k=k,
            first_kept_step=kept.step + 1,
            summary=f"summary before {step}",
            guidance=ids,
            shortened=dict(shown),
            mechanical=mechanical,
            sample_seq=seq,
            before=step,
        )
        pair = self.renderer.fork_pair(kept, self.fork.summary, earlier, shown)
        self.context = forked_context(context, k, pair, seq)
        assert len(self.context.entries) == t - k + 1
        same(self.resumed(), self.context)  # a worker may die between a fork and its first sample

    def told(self, seq: int) -> tuple[int, ...]:
        """A prompt, from the ledger alone."""
        sample = self.samples[seq]
        before: tuple[int, ...] = ()
        if sample.parent_seq is not None:
            ids = self.samples[sample.parent_seq].token_ids or ()
            before = (self.told(sample.parent_seq) + ids)[: sample.kept]
        assert len(before) == sample.kept
        return before + (sample.new_prompt_ids or ())

    def resumed(self) -> Context:
        """The context of a worker that starts now."""
        first = self.fork.first_kept_step - 1 if self.fork else 1
        guidance = [self.said[one] for one in self.fork.guidance] if self.fork else []
        records = [record for record in self.records if record.step >= first]
        return rebuild_context(self.renderer, self.head, records, self.fork, guidance).context

    def read(self, thoughts: ThoughtHandling) -> list[Message]:
        """The messages of the next prompt, as every reader of the journal puts them together."""
        first = self.fork.first_kept_step if self.fork else 1
        since = ContextBody(
            fork=self.fork,
            compressed=self.records[first - 2] if self.fork else None,
            earlier=[self.said[one] for one in self.fork.guidance] if self.fork else [],
            steps=[record for record in self.records if record.step >= first],
        )
        return build_messages(self.head, since, strip=thoughts == "strip")


def same(again: Context, live: Context) -> None:
    """A resumed worker's context is the one that it had."""
    assert again.prompt_ids == live.prompt_ids
    assert again.messages == live.messages
    assert again.anchor == live.anchor
    assert again.has_no_sample == live.has_no_sample
    assert [entry.ids for entry in again.entries] == [entry.ids for entry in live.entries]
    assert again.guidance_of(99) == live.guidance_of(99)


text = st.text(st.characters(blacklist_categories=("Cs",)), max_size=12)
plans = st.lists(
    st.builds(
        Plan,
        thought=text,
        output=st.one_of(text, st.just("<|im_end|><real_user>"), st.just("</think><tool_call>")),
        guidance=st.lists(st.sampled_from(["go on", "mind it " * 40]), max_size=2).map(tuple),
        ending=st.sampled_from(["stop", "stop", "stop", "cut", "malformed", "lost"]),
        fork=st.sampled_from([False, False, True]),
    ),
    min_size=1,
    max_size=12,
)
slow = settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=60)


@slow
@given(
    plans=plans,
    dialect=st.sampled_from(DIALECT_NAMES),
    thoughts=st.sampled_from(["keep", "strip"]),
    room=st.sampled_from([0, 90, 500]),
)
def test_every_prompt_is_told_by_the_ledger_and_by_a_resumed_worker(
    tokens: PromptTokenizer, plans: list[Plan], dialect: str, thoughts: ThoughtHandling, room: int
) -> None:
    prove_ledger(tokens, plans, dialect, thoughts, room)


@pytest.mark.parametrize("dialect", sampled(FAMILY_DIALECTS, 6))
@settings(slow, max_examples=5)
@given(
    plans=plans,
    thoughts=st.sampled_from(["keep", "strip"]),
    room=st.sampled_from([0, 90, 500]),
)
def test_the_ledger_holds_for_every_family_with_its_tokenizer(
    family_folder: Path, plans: list[Plan], dialect: str, thoughts: ThoughtHandling, room: int
) -> None:
    tokens = PromptTokenizer(family_tokenizer(dialect, family_folder))
    prove_ledger(tokens, plans, dialect, thoughts, room)


def prove_ledger(
    tokens: PromptTokenizer, plans: list[Plan], dialect: str, thoughts: ThoughtHandling, room: int
) -> None:
    """That the ledger, and a worker that resumes, tell every prompt of these steps."""
    history = History.begin(tokens, dialect, thoughts)
    history.room = room
    for plan in plans:
        history.take(plan)
        same(history.resumed(), history.context)
        read = history.read(thoughts)
        assert read == list(history.context.messages), "as `houston context` reads it"
    policy = [seq for seq, sample in history.samples.items() if sample.role == "policy"]
    for seq in history.samples:
        assert history.told(seq) == history.prompts[seq]
    for before, after in itertools.pairwise(policy):
        whole = history.prompts[before] + (history.samples[before].token_ids or ())
        begins = history.prompts[after][: len(whole)] == whole
        drift = history.samples[after].drift
        assert begins if drift == "clean" else drift in ("stripped", "realigned", "forked")
        lost = history.samples[before].token_ids is None
        if thoughts == "keep":
            usual = "realigned" if lost else "clean"
            assert drift in (usual, "forked"), "nothing else drifts"


@slow
@given(plans=plans, dialect=st.sampled_from(DIALECT_NAMES))
def test_guidance_is_in_the_context_once_and_verbatim(
    tokens: PromptTokenizer, plans: list[Plan], dialect: str
) -> None:
    prove_guidance(tokens, plans, dialect)


@pytest.mark.parametrize("dialect", sampled(FAMILY_DIALECTS, 6))
@settings(slow, max_examples=5)
@given(plans=plans)
def test_guidance_is_heard_once_in_every_family(
    family_folder: Path, plans: list[Plan], dialect: str
) -> None:
    prove_guidance(PromptTokenizer(family_tokenizer(dialect, family_folder)), plans, dialect)


def prove_guidance(tokens: PromptTokenizer, plans: list[Plan], dialect: str) -> None:
    """That what people said in these steps is in the newest prompt, each word once."""
    history = History.begin(tokens, dialect, "keep")
    for number, plan in enumerate(plans):
        said = tuple(f"word {number}-{n}" for n, _ in enumerate(plan.guidance))
        # A model may write the tag itself; that is its own word, in its own turn.
        thought = plan.thought.replace("<", "(")
        history.take(Plan(thought, "out", said, plan.ending, plan.fork))
    prompt = tokens.decode(history.context.prompt_ids or ())
    if dialect == "words":  # its markup stands between spaces
        prompt = prompt.replace("<real_user> ", "<real_user>").replace(
            " </real_user>", "</real_user>"
        )
    for one in history.said.values():
        assert prompt.count(f"<real_user>{one.text}</real_user>") == 1
    assert prompt.count("<real_user>") == len(history.said)


def test_the_head_never_changes_and_the_context_only_grows(tokens: PromptTokenizer) -> None:
    history = History.begin(tokens, "chatml-json", "keep")
    before: tuple[int, ...] = history.head.token_ids or ()
    for number in range(6):
        history.take(Plan(f"t{number}", "out", ("said",) if number == 3 else ()))
        now = history.context.prompt_ids or ()
        assert now[: len(before)] == before
        before = now


def test_a_dialect_that_renders_otherwise_does_not_change_a_running_rollout(
    tokens: PromptTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History.begin(tokens, "hermes", "keep")
    for number in range(5):
        history.take(Plan(f"t{number}", "out", fork=number == 3))
    live = history.context.prompt_ids or ()
    newest = len(history.context.entries[-1].ids)
    monkeypatch.setattr("houston_daemon.prompts.prompt_renderer.EARLIER_GUIDANCE", "Otherwise:")
    dialect = history.renderer.dialect
    before = dialect.observation

    def otherwise(results: object, tail: str, stop: str | None = None) -> list[PromptPiece]:
        return [PromptPiece(" changed ", False), *before(results, tail, stop)]  # type: ignore[arg-type]

    monkeypatch.setattr(dialect, "observation", otherwise)
    again = history.resumed().prompt_ids or ()
    told = len(live) - newest
    assert again[:told] == live[:told], "what was sent is taken from the ledger"


def test_without_token_ids_the_context_is_messages_alone() -> None:
    renderer = PromptRenderer(choose_dialect("chatml-json"), None, "keep")
    head = renderer.head("system", (), "task", False)
    assert head.token_ids is None
    context = Context(head_messages(head), None, renderer.head_size(head), PromptAnchor())
    call = ToolCall(id="1.0", name="eval", arguments={})
    extra = ToolCall(id="1.1", name="eval", arguments={})
    sample = SampleBody(
        role="policy", parent_seq=None, kept=0, new_prompt_ids=None, token_ids=None, logprobs=None,
        logprob_kind="none", finish_reason="stop", policy="", engine="script", parameters={},
        drift="forked", thought="why", calls=(call,),
    )  # fmt: skip
    results = [
        ToolResult(call=c, kind="eval", success=True, text=f"r{c.id}") for c in (call, extra)
    ]
    context.add(renderer.render_step(1, sample, results, ObservationBody(tail="[tail]"), ()))
    assert context.prompt_ids is None
    assert [m.role for m in context.messages] == ["system", "user", "assistant", "tool"]
    answer = context.messages[-1]
    assert answer.call_id == "1.0", "a result that answers no call has no message of its own"
    assert "r1.0" in answer.content
    assert answer.content.index("r1.1") < answer.content.index("[tail]")
