"""Computes the reward of each rollout, and how much of it each sampled token gets.

Scores of finished rollouts become advantages, one for each token of a row. `training.rows` makes
the rows; `training.rl` decides what a trainer does with an advantage.
"""
