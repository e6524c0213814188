"""Home: every rollout of every task on one screen, who needs a person most first."""
