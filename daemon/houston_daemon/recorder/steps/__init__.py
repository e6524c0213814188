"""What workers say, from the first hello to the last observation, and what they are told back."""
