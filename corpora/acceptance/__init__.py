"""How the drafter's acceptance model is learned from recorded edits, and how well it holds."""
