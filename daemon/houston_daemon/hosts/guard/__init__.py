"""How a rollout's limits are enforced: control groups, and a watch over what they cannot see."""
