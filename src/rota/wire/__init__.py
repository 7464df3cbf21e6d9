"""Frames and API messages of Kafka's protocol."""
