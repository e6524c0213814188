"""Planner, executor, verifier and memory: the agent of AgentFlow-Pro in Houston's agent loop.

A planner chooses one action a step, which runs like any other call; a verifier judges whether the
question is answered. Sampling, calls, journal, resume, guidance and forks are left to `agent`, the
tools to `environments.research`, and the planner's format to `prompts.planner_dialect`.
"""
