"""Rooms of lab02-data-parallel."""
