"""The trajectory of one rollout: its steps, search, verdicts and bookmarks."""
