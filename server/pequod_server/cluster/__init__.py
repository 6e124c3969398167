"""A server in its cluster: the coordinators that keep the map, and this server as a member."""
