"""Searching: what is asked, the process that looks, and what it found."""
