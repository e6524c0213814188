"""Two rollouts of a task, side by side."""
