"""Memory: the bytes that everything takes, what is evicted when there are too many, and the story of it."""
