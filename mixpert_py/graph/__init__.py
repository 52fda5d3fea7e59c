"""The products of a file as a graph: its text, its picture, and what a run showed of it."""
