"""Suites: generated tasks on which a small model can be seen to learn, and how it does on them.

A suite names its tasks by split and index, so that two policies are held against each other world
by world. What a task's world does is its environment's; training is not done here, except that
`tiny_policy` makes the small model that the worlds of words are for, and `warm_up` has a language
model learn from the rollouts of `imperfect_agents`.
"""
