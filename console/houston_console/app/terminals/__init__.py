"""What the terminals of a rollout print."""
