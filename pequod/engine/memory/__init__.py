"""Memory: what everything takes, what goes when it is short, and the story of what went."""
