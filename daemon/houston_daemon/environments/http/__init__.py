"""A simulator that a user runs, as the environment of a rollout (docs/http-environment.md)."""
