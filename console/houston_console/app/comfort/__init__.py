"""What makes the console pleasant on somebody's own terminal: copying, keys, commands by name."""
