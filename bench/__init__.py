"""Benchmarks: every strategy beside its peers, in one run on the same work. See docs/benchmarks.md."""
