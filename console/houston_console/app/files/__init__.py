"""Files that the agent changed, and what it searched."""
