"""A simulator that a user runs, as the world of a rollout (docs/http-environment.md)."""
