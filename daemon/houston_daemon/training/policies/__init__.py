"""Policies: weights that were trained, where they came from, and the way into engines.

Nothing here imports torch but merging and the GGUF export.
"""
