"""What a plain call takes of a server: each of its ways of serving, and other systems beside it."""
