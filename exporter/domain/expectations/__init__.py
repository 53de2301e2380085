"""What a rollup published of each stream, and the score of a silence against it."""
