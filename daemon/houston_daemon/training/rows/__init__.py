"""Rows: which tokens of a rollout are trained, and in which context.

`training_row` has the types, `row_builder` makes them. Everything here runs on the base install: no
torch, no transformers.
"""
