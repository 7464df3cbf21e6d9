"""Kafka's byte formats: the consumer protocol, the records of ``__consumer_offsets``, record
batches, and what they are made of.
"""
