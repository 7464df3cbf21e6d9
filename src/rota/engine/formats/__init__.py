"""Kafka's byte formats: the consumer protocol, the journal's records, and record batches."""
