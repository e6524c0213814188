"""Rows of one rollout: the door that exporters and trainers use.

It chooses where the ids come from. Everything is read as it is asked for, one row at a time, in
short reads, so a running rollout is not held back.
"""

from collections.abc import Iterator
from pathlib import Path

from houston_daemon.dialects.choose import choose_dialect
from houston_daemon.rollout.rendering import Renderer
from houston_daemon.rollout.tokens import Tokens
from houston_daemon.training.rows import chat, reading, rendering, tokens
from houston_daemon.training.rows.beside import ALONE, Beside
from houston_daemon.training.rows.plan import RolloutPlan
from houston_daemon.training.rows.rendering import Rendering
from houston_daemon.training.rows.row import ChatRow, Row, RowOptions
from houston_daemon.training.rows.ruled import RuleVerdicts
from houston_daemon.training.rows.soundness import Reserved
from houston_shared.errors import ConfigurationError
from houston_shared.records import Head, Thoughts
from houston_shared.store.reader import Reader

AS_IT_RAN = RowOptions()


def token_rows(
    reader: Reader,
    rollout: str,
    options: RowOptions = AS_IT_RAN,
    beside: Beside = ALONE,
    rules: RuleVerdicts | None = None,
) -> Iterator[Row]:
    """Rows of a rollout (a whole id) as token ids, in its order; none before its first step.

    They are the ledger's ids where the rollout ran with the dialect and tokenizer that are trained
    and kept its thoughts; else they are rendered. Steps that are not closed are not used. A row in
    which everything is masked comes, too: who exports decides.

    beside: all rollouts of the export: a step that several share is trained once among them. rules:
    what rules say of the rollout (`ruled`); None: what was stored of them counts. Raises
    HoustonError for erased or damaged ledgers, and ConfigurationError where a dialect or tokenizer
    is not known.
    """
    plan = reader.run(reading.plan(rollout, beside, rules))
    if plan.head is None:
        return
    strip, own = _thoughts(plan, options) == "strip", _own(plan, plan.head, options)
    if own and not strip:
        yield from tokens.rows(reader, plan, options)
    else:
        yield from rendering.rows(reader, plan, options, _rendering(plan, plan.head, options, own))


def chat_rows(
    reader: Reader,
    rollout: str,
    options: RowOptions = AS_IT_RAN,
    beside: Beside = ALONE,
    rules: RuleVerdicts | None = None,
) -> Iterator[ChatRow]:
    """The same rows as messages; see `token_rows`. Dialect and tokenizer are not asked for."""
    plan = reader.run(reading.plan(rollout, beside, rules))
    if plan.head is not None:
        yield from chat.rows(reader, plan, options, _thoughts(plan, options))


def _thoughts(plan: RolloutPlan, options: RowOptions) -> Thoughts:
    return "strip" if "strip" in (plan.thoughts, options.thoughts) else "keep"


def _own(plan: RolloutPlan, head: Head, options: RowOptions) -> bool:
    """Whether the rollout's own ids are those of the dialect and tokenizer that are trained."""
    if head.token_ids is None or options.dialect not in ("", head.dialect):
        return False
    if options.reasoning not in (None, plan.reasoning):
        return False
    return not options.tokenizer or _same(_file(options.tokenizer), Path(head.tokenizer))


def _same(asked: Path, own: Path) -> bool:
    if asked == own:
        return True
    return asked.is_file() and own.is_file() and asked.read_bytes() == own.read_bytes()


def _file(named: str) -> Path:
    path = Path(named)
    return path / "tokenizer.json" if path.is_dir() else path


def _rendering(plan: RolloutPlan, head: Head, options: RowOptions, own: bool) -> Rendering:
    known = head.token_ids is not None
    name = options.dialect or (head.dialect if known else "")
    file = options.tokenizer or (head.tokenizer if known else "")
    if not name or not file:
        raise ConfigurationError(
            f"{plan.rollout} was sampled by an engine without token ids ({plan.engine}): its rows"
            " must be rendered for the model that is trained.",
            reading.NOTHING,
            "Name that model's dialect and its tokenizer.json.",
        )
    reasoning = plan.reasoning if options.reasoning is None else options.reasoning
    dialect, made = choose_dialect(name, reasoning), Tokens(str(_file(file)))
    if made.id_of(dialect.stop_tokens[0]) is None:
        raise ConfigurationError(
            f"The tokenizer {made.path} has no token {dialect.stop_tokens[0]}, which ends an answer"
            f" in the dialect {name}.",
            reading.NOTHING,
            "Name the dialect of the tokenizer's family.",
        )
    thoughts = _thoughts(plan, options)
    told = own and plan.thoughts == "strip"
    renderer = Renderer(dialect, made, thoughts)
    return Rendering(
        renderer,
        made,
        own,
        told,
        Reserved(made, dialect),
        rendering.tools(head),
        options.short_tools,
        options.window,
    )
