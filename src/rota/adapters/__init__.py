"""Rota's strategies inside other client libraries."""
