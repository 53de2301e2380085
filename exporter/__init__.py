"""topic-liveness: which Kafka topics are still alive."""

__version__ = "0.1.0"
