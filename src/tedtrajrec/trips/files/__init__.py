"""What the readers and writers of trips are made of: one module a format, and what the formats share."""
