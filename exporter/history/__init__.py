"""History: windows in memory, written as Parquet spool files, each whole or not at all.

Spark ingests the spool. Volume follows activity: a window is written only where a partition advanced, restarted or
could not be read. Coverage and inventory prove the silence of the others.
"""
