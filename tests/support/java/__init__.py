"""Apache Kafka's own Java classes, as the oracle of tests and the peer of benchmarks."""
