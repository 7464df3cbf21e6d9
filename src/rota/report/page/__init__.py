"""The HTML page of the report: the Python code that writes it, and its HTML, CSS and JavaScript."""
