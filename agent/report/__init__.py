"""Output of a run for people and programs: the page, the summaries, the table in the terminal."""
