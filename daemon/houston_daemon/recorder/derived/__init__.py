"""Derived tables: what each event means for them. Pure functions, one module a subject."""
