"""Rooms of lab05-layer-partitioning."""
