"""The panes around the trajectory: files, terminals, guidance, what happened since the last
visit.
"""
