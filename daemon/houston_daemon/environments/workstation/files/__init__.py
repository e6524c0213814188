"""The files of the workspace: windows, edits, searches."""
