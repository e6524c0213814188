"""Tools that somebody else describes: made safe to show, to decode under, and to check."""
