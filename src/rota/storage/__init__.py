"""Kafka's log folders on disk. The one room below the tools that touches files."""
