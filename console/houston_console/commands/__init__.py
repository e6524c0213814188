"""Headless commands that read a home or send one small message; none imports Textual."""
