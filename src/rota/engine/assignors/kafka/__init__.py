"""Kafka's own sticky algorithm, to tell what Java consumers did or would do."""
