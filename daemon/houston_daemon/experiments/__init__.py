"""Experiments that measure what guidance and masks are worth: rollouts, training, held-out tasks,
tables.
"""
