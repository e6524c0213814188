"""Terminals: sessions, commands and their output."""
