"""The card of a rollout: everything that is known of it from afar, without opening it.

State and reason, why it needs somebody, what it did last, what is new, who is there, what attention
it has cost, and the tree of an attempt and its refinements. It reads nothing.
"""

from collections.abc import Sequence

from houston_console.commands.rollout_summary import format_score
from houston_console.screens.home_columns import HomeEntry, HomeViewContext
from houston_console.screens.rollout_lists import (
    STATE_GLYPHS,
    format_moment,
    need_reasons,
    people_text,
    person_cost,
    rollout_state_text,
    urgency_mark,
)
from houston_console.widgets.styled_text import (
    TextLine,
    Tone,
    fit_text,
    gain_tone,
    hanging_block,
    justify_line,
    line,
    span,
)
from houston_shared.store.presence_queries import AttentionCost
from houston_shared.store.refinement_queries import RefinementTree
from houston_shared.store.rollout_queries import RolloutRow
from houston_shared.times_and_counts import format_age, pluralize

MAX_LISTED_REFINEMENTS = 6
"""Refinements of a tree that are shown: the first ones."""


def refinement_tree_lines(tree: RefinementTree, rollout: str, width: int) -> list[TextLine]:
    """An attempt and its refinements, each with its score, gain and what it was told; the one at
    the cursor stands out."""
    score = "no score" if tree.score is None else f"score {format_score(tree.score)}"
    count = len(tree.tried)
    head = f"{tree.attempt}, {score}, tried again {pluralize(count, 'time')}"
    lines = [line(span(" ↻ ", "key"), span(fit_text(head, max(0, width - 3)), "text"))]
    refinements = tree.tried[:MAX_LISTED_REFINEMENTS]
    for number, each in enumerate(refinements, 1):
        branch = "└" if number == count else "├"
        gain = each.state if each.gain is None else f"{each.gain:+.2f}"
        parts = line(
            span(f"   {branch} ", "faint"),
            span(f"{each.rollout}  ", "strong" if each.rollout == rollout else "dim"),
            span(f"{format_score(each.score):>5} ", "score"),
            span(f"{gain:>6}  ", gain_tone(each.gain)),
            span(f"{each.critic}: ", "key"),
            span(each.text, "guidance_text"),
        )
        lines.append(justify_line(parts, (), width))
    if count > len(refinements):
        lines.append(line(span(f"   └ {count - len(refinements)} more", "dim")))
    return lines


def rollout_card(
    entry: HomeEntry,
    spent: Sequence[AttentionCost],
    view: HomeViewContext,
    tree: RefinementTree | None = None,
    is_brief: bool = False,
) -> list[TextLine]:
    """Everything that is known of the rollout at the cursor from afar.

    is_brief: all reasons in one block, and not what it did last: its last steps stand below.
    """
    overview, rollout = entry.need.overview, entry.need.overview.rollout
    rows = [justify_line(_card_head(rollout), (), view.width)]
    if rollout.parent:
        rows += _card_block(
            "⑂", f"branch of {rollout.parent} at step {rollout.parent_step}", "dim", view
        )
    if tree is not None:
        rows += refinement_tree_lines(tree, rollout.id, view.width)
    reasons = need_reasons(entry.need)
    for text in ["; ".join(reasons)] if is_brief and reasons else reasons:
        rows += _card_block("!", text, urgency_mark(entry.need).tone, view)
    if (acted := overview.acted) is not None and not is_brief:
        when = format_moment(acted.at, view.now_us)
        text = f"step {acted.step}, {when} ({format_age(acted.at, view.now_us)}): {acted.text}"
        rows += _card_block("▸", text, "dim", view)
    if overview.new_steps:
        many = pluralize(overview.new_steps, "step")
        rows += _card_block("+", f"{many} since you were here", "text", view)
    for mark, text in people_text(overview, view.person, view.now_us):
        rows += _card_block(mark, text, "guidance_text" if mark == "✉" else "text", view)
    if spent:
        rows += _card_block(
            "◷",
            "attention: " + "; ".join(person_cost(cost, view.person) for cost in spent),
            "dim",
            view,
        )
    return rows


def _card_head(rollout: RolloutRow) -> TextLine:
    """State, id, task and policy."""
    glyph, tone = STATE_GLYPHS.get(rollout.state, ("?", "dim"))
    return line(
        span(f" {glyph} ", tone),
        span(rollout.id, "strong"),
        span(f"  {rollout_state_text(rollout)}", tone),
        span(f"  {rollout.task} · {rollout.policy or rollout.engine}", "dim"),
    )


def _card_block(mark: str, text: str, tone: Tone, view: HomeViewContext) -> list[TextLine]:
    return hanging_block(span(f" {mark} ", "key"), text, view.width, tone)
