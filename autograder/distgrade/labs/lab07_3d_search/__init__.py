"""Rooms of lab07-3d-search."""
