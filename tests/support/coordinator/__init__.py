"""The same requests to a live Kafka broker and to Rota's coordinator: the same answers."""
