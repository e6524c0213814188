"""What the recorder keeps on disk: database, WAL, blobs, head file, and room for them."""
