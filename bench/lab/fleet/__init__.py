"""Clusters of many servers, by one server that is real and others that are played."""
