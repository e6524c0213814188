"""Bookmarks, notes and permalinks: what people leave on steps for each other."""
