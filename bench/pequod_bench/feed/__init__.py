"""A home feed with the rules of Mastodon: joins before PostgreSQL, and feeds that an application pushes into Redis."""
