"""The three versions of `filter.py` that the scripted agent writes, as it writes them."""
