"""Verdicts of people: keep or mask steps, with reasons, and take it back."""
