"""topic-liveness: which Kafka topics are still alive."""

import os

__version__ = "0.1.0"

# Before numpy is imported: nothing here is linear algebra, and a process with its threads could not fork.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
