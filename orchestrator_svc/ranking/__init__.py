"""Orders candidates by their scores, and explains the order."""
