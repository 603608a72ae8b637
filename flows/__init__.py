"""One file for each flow; the flow is last and reads as a sentence."""
