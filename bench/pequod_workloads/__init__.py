"""Twip and Newp, as the paper has them: keys, joins, and the numbers by which bench and Spark draw them."""
