"""How model families write: one module each, chosen in `choose`."""
