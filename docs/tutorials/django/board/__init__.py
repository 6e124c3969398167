"""A board of stories that members vote for."""
