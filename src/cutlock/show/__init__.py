"""From a trace, a log or a run to the data of a page."""
