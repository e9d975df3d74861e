"""Long runs that pass or fail: swaps, rolls, soak, watch."""
