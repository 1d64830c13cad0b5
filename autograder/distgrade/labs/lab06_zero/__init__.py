"""Rooms of lab06-zero."""
