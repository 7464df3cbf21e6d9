"""Kafka's consumer groups in Python."""

__version__ = "0.1.0"
