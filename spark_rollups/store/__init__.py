"""The tables of a history folder: schemas, commits that are read back, and one rollup at a time."""
