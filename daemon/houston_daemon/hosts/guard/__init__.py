"""How a rollout is held to its limits: control groups, and a watch over what they cannot see."""
