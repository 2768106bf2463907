"""The single controller: two pumps on one event loop, the save and the restore."""
