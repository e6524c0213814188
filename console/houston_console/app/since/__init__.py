"""What happened in a rollout since this person last looked, and a way through it."""
