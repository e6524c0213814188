"""Which reward a rollout earned, and how much of it each sampled token is given.

It turns scores of finished rollouts into advantages beside the tokens of rows. Where rows come
from is `training.rows`'; what a trainer does with an advantage is `training.rl`'s.
"""
