"""How fresh reads ask to be, and when they may be answered."""
