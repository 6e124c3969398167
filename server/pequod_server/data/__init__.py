"""A server's own base data on disk: what `pequod serve --data DIR` keeps, and how it is read again."""
