"""What helps an agent most: a strategy, in general words (APOLLO, section 3.3). Pure."""

import re

PLACEHOLDER = "Say what to aim for and why; the how is the agent's. It reads this next."
"""In an empty composer: where it is read once and is never in the way."""
WORDS = "a strategy helps longer than a command"
"""Beside what reads like a command; nothing is refused."""
_COMMAND = re.compile(
    r"^\s*(\$ |>>> |```|sudo |pip |git |cd |python3? |bash |sed |cat )|&&|\|\|?\s*\w"
)


def is_command(text: str) -> bool:
    """Whether most lines of `text` are for a shell rather than for somebody who thinks."""
    lines = [line for line in text.splitlines() if line.strip()]
    return bool(lines) and 2 * sum(bool(_COMMAND.search(line)) for line in lines) > len(lines)
