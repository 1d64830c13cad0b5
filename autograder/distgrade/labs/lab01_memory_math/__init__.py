"""Rooms of lab01-memory-math."""
