"""The parse family: documents, pictures, sound and video of the workspace as Markdown."""
