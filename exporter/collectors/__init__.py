"""Everything that is asked of a cluster on a schedule, one file for each thing."""
