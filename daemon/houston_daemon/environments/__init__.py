"""Environments: what turns an action into an observation."""
