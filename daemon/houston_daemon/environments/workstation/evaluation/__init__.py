"""The task's evaluator, and its slots on a host."""
