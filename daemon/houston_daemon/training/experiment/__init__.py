"""Measures what guidance and masks are worth: rollouts, training, held-out tasks, tables.

It drives the `houston` commands as a person would, in a home of its own. Torch is never imported
here; matplotlib only in `pictures`.
"""
