"""What keeps a home whole over years: verify, backups, repair, upgrade, archives,
erased bodies.
"""
