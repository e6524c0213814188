"""Suites: generated tasks on which a small model can visibly learn, and its results on them.

A suite names its tasks by split and index, so that two policies are compared world by world. An
environment defines what a task's world does. Training is elsewhere, except that `tiny_policy` makes
the small model for the worlds of words, and `warm_up` trains a language model on the rollouts of
`imperfect_agents`.
"""
