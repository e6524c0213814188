"""What people said to running agents, as training data for a critic: examples with their gains, and
drafts that people rejected or reworded."""
