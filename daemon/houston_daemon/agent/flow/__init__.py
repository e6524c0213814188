"""Planner, executor, verifier and memory: the agent of AgentFlow-Pro in Houston's one loop.

A planner says one action a step, which is carried out as any call; a verifier says whether the
question is answered. It leaves sampling, calls, journal, resume, guidance and forks to `agent`, the
tools to `environments.research`, and how a planner writes to `prompts.planner_dialect`.
"""
