"""A real broker process, killed, paused and cut off under load."""
