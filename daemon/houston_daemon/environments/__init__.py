"""Environments: what turns an action into an observation. One module or folder for each."""
