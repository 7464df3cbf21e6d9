"""Handlers of requests: one module for each family of APIs."""
