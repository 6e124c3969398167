"""The protocol between servers: homes own base data, computes load it from them and follow its changes."""
