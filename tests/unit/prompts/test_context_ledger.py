"""The ledger's arithmetic: what is stored tells the prompt again, and its class is true."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from houston_daemon.prompts.context_ledger import (
    PromptAnchor,
    common_prefix_length,
    link_prompt,
)

ids = st.lists(st.integers(0, 3), max_size=30).map(tuple)


@given(ids, ids)
def test_the_common_prefix_is_the_longest(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    kept = common_prefix_length(first, second)
    assert first[:kept] == second[:kept]
    longer = kept < min(len(first), len(second))
    assert not longer or first[kept] != second[kept]


@given(ids, ids, st.booleans(), st.booleans())
def test_a_link_tells_its_prompt_again(
    parent: tuple[int, ...], prompt: tuple[int, ...], fresh: bool, stripped: bool
) -> None:
    how = link_prompt(PromptAnchor(5, parent), prompt, fresh=fresh, stripped=stripped)
    assert how.new_ids is not None
    assert (*parent[: how.kept], *how.new_ids) == prompt
    begins = prompt[: len(parent)] == parent
    if fresh:
        assert how.drift == "forked"
    elif begins:
        assert how.drift == "clean"
    else:
        assert how.drift == ("stripped" if stripped else "realigned")


@pytest.mark.parametrize(
    ("anchor", "prompt", "fresh", "expected"),
    [
        (PromptAnchor(), (1, 2), True, (None, 0, (1, 2), "forked")),
        (PromptAnchor(9, (1, 2)), (1, 2, 7), True, (9, 2, (7,), "forked")),
        (PromptAnchor(9, (1, 2)), (1, 2, 7), False, (9, 2, (7,), "clean")),
        (PromptAnchor(9, (1, 2)), (1, 2), False, (9, 2, (), "clean")),
        (PromptAnchor(9, (1, 2)), (1, 3), False, (9, 1, (3,), "realigned")),
        (PromptAnchor(9), None, False, (9, 0, None, "clean")),
        (PromptAnchor(), None, True, (None, 0, None, "forked")),
    ],
)
def test_links_of_named_cases(
    anchor: PromptAnchor,
    prompt: tuple[int, ...] | None,
    fresh: bool,
    expected: tuple[object, ...],
) -> None:
    how = link_prompt(anchor, prompt, fresh=fresh)
    assert (how.parent_seq, how.kept, how.new_ids, how.drift) == expected
