"""A lake: what few rows cost by its size, queries while it takes in rows, and other stores beside it."""
