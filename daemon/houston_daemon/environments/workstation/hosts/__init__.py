"""The hosts of one rollout, and what the workstation does on each."""
