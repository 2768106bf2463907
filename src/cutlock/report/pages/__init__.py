"""Pages that a browser shows without a server: a story step by step, and a run as a whole."""
