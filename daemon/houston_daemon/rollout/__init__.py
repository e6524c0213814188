"""The loop of APOLLO's Algorithm 1, part A: one rollout, one worker process."""
