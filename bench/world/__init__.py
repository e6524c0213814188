"""The figures of `bench/environment.py`, a module each: `measure(folder, …)` gives one as JSON."""
