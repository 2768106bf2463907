"""Walks that take every edge of a state graph, done on the real code."""
