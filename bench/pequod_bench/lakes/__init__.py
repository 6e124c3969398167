"""A lake beside other stores for many rows: what loads, reads, updates and the disk take."""
