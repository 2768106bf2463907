"""What people and programs see of a run: terminal output and JSON."""
