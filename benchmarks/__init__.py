"""What is timed; nothing here is asserted in a test."""
