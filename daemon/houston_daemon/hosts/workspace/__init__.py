"""A rollout's workspace: how it is made, and whose it is."""
