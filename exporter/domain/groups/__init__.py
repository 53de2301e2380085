"""Consumer groups: committed offsets, and lag in records and seconds."""
