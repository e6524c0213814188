"""The figures of `bench/durability.py`, a module each: `measure(folder)` gives one as JSON."""
