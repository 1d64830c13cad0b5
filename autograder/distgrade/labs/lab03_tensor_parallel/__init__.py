"""Rooms of lab03-tensor-parallel."""
