"""The variables of the specification, read off real objects, rows and files."""
