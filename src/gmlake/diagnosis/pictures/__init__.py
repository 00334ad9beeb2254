"""What the page of a diagnosis shows: each figure with its drawing."""
