"""Policies and training runs: what was trained, how far it is, what new rollouts sample with."""
