"""Rooms of lab00-first-steps."""
