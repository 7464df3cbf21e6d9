"""A Kafka-compatible broker of one node: sans-IO inside, asyncio around it."""
