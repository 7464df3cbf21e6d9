"""Strategies: who gets which partition."""
