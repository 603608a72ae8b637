"""Real shifts in processes of their own, killed, frozen and cut off."""
