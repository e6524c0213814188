"""Which rollouts there are, and who needs a person."""
