"""Rota in other libraries: its strategies in kafka-python and aiokafka, its broker in pytest."""
