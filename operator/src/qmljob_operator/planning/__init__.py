"""What to do about a job: an observation and the time in, a plan of writes out. Pure."""
