"""Snapshots: base data saved in files, by themselves and when asked, and restored from there."""
