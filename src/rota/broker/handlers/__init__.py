"""Handlers of requests: one file for each family of APIs."""
