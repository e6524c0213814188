"""The agent of a rollout: the loop of APOLLO's Algorithm 1, part A, in one worker process."""
