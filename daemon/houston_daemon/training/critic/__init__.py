"""What people said to running agents, as what a critic learns from: examples with their gains, and
drafts that people turned down or said in other words."""
