"""Who else is here, who looks after what, and what they leave for each other."""
