"""A research-like rollout of 300 steps, as a script: what the agent writes, runs, reads and learns.

The task lies in trajectories/samples/filter-reviews. Numbers in the agent's thoughts are not made
up: the program runs the same filters and the same training, which are deterministic.
"""
