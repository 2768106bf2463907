"""The engine: `Run`, its state, save and restore, its directory and configuration."""
