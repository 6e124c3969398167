"""What a home gives to the servers that compute from its base data: loads, a feed of changes, places, writes."""
