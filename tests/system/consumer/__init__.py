"""Rota's consumer in groups of real clients, against a real Kafka and against Rota's own broker."""
