"""The browse family: web pages as numbered lines of readable text."""
