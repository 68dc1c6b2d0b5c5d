"""The process that owns a device: it checks and times programs that others have built."""
