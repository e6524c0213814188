"""Trajectories of other programs in and out: ATIF both ways, logs of inspect_ai in.

What comes in is stored by the recorder as ended rollouts, marked as sampled elsewhere. Tasks of
others are `importers`, rows to train on are `training.export`.
"""
