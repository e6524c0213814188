"""Rows as files that other programs train on: one module per consumer, pure, with its own rules."""
