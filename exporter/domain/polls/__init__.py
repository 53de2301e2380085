"""What polls see of a cluster: one table, a row for each partition and a column for each fact."""
