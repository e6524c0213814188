"""OpenEnv: its servers as worlds of ours, and our environments served by its protocol."""
