"""Free schedules: the code beside the reference."""
