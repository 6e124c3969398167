"""What an engine answers, as plain values: clients have them without it."""
