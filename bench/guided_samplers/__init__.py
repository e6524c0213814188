"""The samplers of bench/guidance.py: a fault that no error shows, and a person who sees it."""
