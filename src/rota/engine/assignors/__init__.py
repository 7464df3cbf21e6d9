"""Partition assignment strategies: Kafka's own, exact ones, and the contract for custom ones.

A group and its topics become a `Problem` (problem.py); a strategy turns it into one owner per
partition; interface.py checks the result.
"""
