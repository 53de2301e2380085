"""Adapters to Kafka; each uses a client.

What loads librdkafka or kafka-python runs in processes of its own, which ``exporter.kafka.process`` starts.
"""
