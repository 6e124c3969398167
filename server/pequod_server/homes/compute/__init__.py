"""The homes of another server as the database of a server that computes."""
