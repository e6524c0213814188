"""The parts of bench/console.py: a home, steps that arrive, a terminal, and the consoles in it."""
