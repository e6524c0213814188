"""Rows of one rollout as token ids or as messages: the entry point for exporters and trainers.

It chooses where ids come from: from the ledger if rollout and trained model share dialect and
tokenizer, otherwise from rendering. Rows are read one at a time in short reads, so that a running
rollout is not held back.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from houston_daemon.prompts.model_dialects import choose_dialect
from houston_daemon.prompts.planner_dialect import PLANNER_PREFIX, planner_dialect
from houston_daemon.prompts.prompt_renderer import PromptRenderer
from houston_daemon.prompts.prompt_tokenizer import load_prompt_tokenizer
from houston_daemon.training.rows import chat_rows, recorded_rows, rendered_rows, rollout_plan
from houston_daemon.training.rows.answer_soundness import ReservedTokens
from houston_daemon.training.rows.rendered_rows import RowRenderer, make_rendered_summaries
from houston_daemon.training.rows.row_weights import PlannedContext, RolloutPlan
from houston_daemon.training.rows.rule_verdicts import RuleVerdicts
from houston_daemon.training.rows.shared_steps import NO_SHARED_STEPS, SharedSteps
from houston_daemon.training.rows.training_row import ChatRow, RowOptions, TokenRow
from houston_shared.errors import ConfigurationError
from houston_shared.records import ContextHead, ThoughtHandling
from houston_shared.store.store_reader import Reader

DEFAULT_OPTIONS = RowOptions()


def build_token_rows(
    reader: Reader,
    rollout: str,
    options: RowOptions = DEFAULT_OPTIONS,
    shared: SharedSteps = NO_SHARED_STEPS,
    rules: RuleVerdicts | None = None,
) -> Iterator[TokenRow]:
    """Rows of a rollout (a whole id) as token ids, in its order; none before its first step.

    They are the ledger's ids if the rollout ran with the trained dialect and tokenizer and kept its
    thoughts; otherwise they are rendered. Steps that are not closed are not used. Rows in which
    everything is masked are included; the exporter decides.

    shared: all rollouts of the export: a step that several share is trained once among them. rules:
    what rules say of the rollout (`rule_verdicts`); None: the stored verdicts count. Raises
    HoustonError for erased or damaged ledgers, and ConfigurationError where a dialect or tokenizer
    is not known.
    """
    plan = _read_plan(reader, rollout, options, shared, rules)
    if (head := plan.head) is None:
        return
    own = _can_use_recorded_ids(plan, head, options)
    if own and _row_thoughts(plan, options) != "strip":
        rendered: list[Callable[[PlannedContext], Iterator[TokenRow]]] = []

        def render_summary(context: PlannedContext) -> Iterator[TokenRow]:
            if not rendered:  # a tokenizer is loaded only where it is needed
                rendering = _make_renderer(plan, head, options, own)
                rendered.append(make_rendered_summaries(reader, plan, options, rendering))
            return rendered[0](context)

        yield from recorded_rows.make_recorded_rows(reader, plan, options, render_summary)
    else:
        _refuse_raw_attempts(plan)
        yield from rendered_rows.make_rendered_rows(
            reader, plan, options, _make_renderer(plan, head, options, own)
        )


def build_chat_rows(
    reader: Reader,
    rollout: str,
    options: RowOptions = DEFAULT_OPTIONS,
    shared: SharedSteps = NO_SHARED_STEPS,
    rules: RuleVerdicts | None = None,
) -> Iterator[ChatRow]:
    """The same rows as messages (see `build_token_rows`), without a dialect or tokenizer."""
    plan = _read_plan(reader, rollout, options, shared, rules)
    _refuse_raw_attempts(plan)
    if plan.head is not None:
        yield from chat_rows.make_chat_rows(reader, plan, options, _row_thoughts(plan, options))


def _read_plan(
    reader: Reader,
    rollout: str,
    options: RowOptions,
    shared: SharedSteps,
    rules: RuleVerdicts | None,
) -> RolloutPlan:
    raw = options.attempts == "raw"
    plan: RolloutPlan = reader.run(
        rollout_plan.query_rollout_plan(rollout, shared, rules, attempts=raw)
    )
    return plan


def _refuse_raw_attempts(plan: RolloutPlan) -> None:
    """Raw attempts stand in the ledger as they were sampled; nothing renders them."""
    if any(step.others for context in plan.contexts for step in context.steps):
        raise ConfigurationError(
            f"{plan.rollout} was purified, and what was sampled exists only as token ids in the"
            " ledger.",
            rollout_plan.NO_ROWS_MESSAGE,
            "Export it with the dialect and tokenizer that it ran with, in a format of ids.",
        )


def _row_thoughts(plan: RolloutPlan, options: RowOptions) -> ThoughtHandling:
    return "strip" if "strip" in (plan.thoughts, options.thoughts) else "keep"


def _can_use_recorded_ids(plan: RolloutPlan, head: ContextHead, options: RowOptions) -> bool:
    """Whether the rollout's own ids are those of the dialect and tokenizer that are trained."""
    family = head.dialect.removeprefix(PLANNER_PREFIX)
    if head.token_ids is None or options.dialect not in ("", head.dialect, family):
        return False
    if options.reasoning not in (None, plan.reasoning):
        return False
    return not options.tokenizer or is_same_file(
        tokenizer_file(options.tokenizer), Path(head.tokenizer)
    )


def is_same_file(path: Path, own: Path) -> bool:
    """Whether two files are one, or have the same bytes."""
    if path == own:
        return True
    return path.is_file() and own.is_file() and path.read_bytes() == own.read_bytes()


def tokenizer_file(setting: str) -> Path:
    """`tokenizer.json`, where a setting names it or the folder that holds it."""
    path = Path(setting)
    return path / "tokenizer.json" if path.is_dir() else path


def _make_renderer(
    plan: RolloutPlan, head: ContextHead, options: RowOptions, own: bool
) -> RowRenderer:
    has_ids = head.token_ids is not None
    name = options.dialect or (head.dialect if has_ids else "")
    file = options.tokenizer or (head.tokenizer if has_ids else "")
    if not name or not file:
        raise ConfigurationError(
            f"{plan.rollout} was sampled by an engine without token ids ({plan.engine}): its rows"
            " must be rendered for the model to be trained.",
            rollout_plan.NO_ROWS_MESSAGE,
            "Name that model's dialect and its tokenizer.json.",
        )
    reasoning = plan.reasoning if options.reasoning is None else options.reasoning
    dialect = choose_dialect(name, reasoning)
    if plan.step_role == "planner":
        dialect = planner_dialect(dialect)
    tokenizer = load_prompt_tokenizer(str(tokenizer_file(file)))
    if missing := tokenizer.first_missing_token((dialect.stop_tokens[0], *dialect.markup)):
        raise ConfigurationError(
            f"The tokenizer {tokenizer.path} has no token {missing}, which the dialect {name}"
            " writes.",
            rollout_plan.NO_ROWS_MESSAGE,
            "Name the dialect of the tokenizer's family.",
        )
    thoughts = _row_thoughts(plan, options)
    sampled_stripped = own and plan.thoughts == "strip"
    renderer = PromptRenderer(dialect, tokenizer, thoughts)
    return RowRenderer(
        renderer,
        tokenizer,
        own,
        sampled_stripped,
        ReservedTokens(tokenizer, dialect),
        rendered_rows.tools_of_head(head),
        options.short_tools,
        options.window,
    )
