"""Building blocks that two or more networks share."""
