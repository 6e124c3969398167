"""What a cluster is, as plain values: its servers, its map, and which server a key belongs to. No I/O.

TOML, or a message ---> ClusterState ---> Owners ---> the servers that read or write a key
                         |- ClusterMap    joins, placements, home ranges: what the operator decides
                         |- ServerEntry   who is there
"""
