"""Imports and exports trajectories of other programs: ATIF both ways, logs of inspect_ai in.

The recorder stores imports as ended rollouts, marked as sampled elsewhere. `importers` handles
tasks of others, `training.export` rows to train on.
"""
