"""Every strategy beside its peers, in one run on the same work: see docs/benchmarks.md."""
