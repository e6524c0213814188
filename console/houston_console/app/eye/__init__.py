"""Exactly what the model was given at a step."""
